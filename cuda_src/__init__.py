"""Device code. A package only so that editable installs and wheels find the same files."""
