"""Where things are in this checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = ROOT / "functions"
ENV_FILE = FUNCTIONS / ".env"
SECRETS_FILE = FUNCTIONS / ".secret.local"
DATA = ROOT / ".metacortex"
