"""The owner at the pages of signing in, in Chromium."""

from playwright.async_api import Page

from signing import PASSPHRASE


async def sign_in(page: Page, url: str, passphrase: str = PASSPHRASE) -> None:
    await page.goto(url)
    await page.get_by_label("Passphrase").fill(passphrase)
    async with page.expect_navigation():
        await page.get_by_role("button", name="Sign in").click()


async def answer(page: Page, button: str) -> None:
    await page.get_by_role("button", name=button).click()
