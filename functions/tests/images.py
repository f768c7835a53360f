"""The smallest whole images of each kind, as bytes and as base64."""

import base64

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
GIF = base64.b64decode("R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=")
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xd9"
WEBP = b"RIFF" + (12).to_bytes(4, "little") + b"WEBPVP8L\0\0\0\0"
AVIF = (28).to_bytes(4) + b"ftypavif" + bytes(4) + b"avifmif1miaf" + b"rest of the file"
HEIC = (24).to_bytes(4) + b"ftypmif1" + bytes(4) + b"mif1heic" + b"rest of the file"
WHOLE = {
    "image/png": PNG,
    "image/gif": GIF,
    "image/jpeg": JPEG,
    "image/webp": WEBP,
    "image/heic": HEIC,
    "image/heif": HEIC,
}
PNG_BASE64 = base64.b64encode(PNG).decode()
