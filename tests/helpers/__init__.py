"""What several tests share, imported as `from tests.helpers.NAME import ...`."""
