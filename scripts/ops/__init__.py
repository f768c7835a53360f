"""The operator's tools: what ./scripts/dev, ./scripts/test and ./scripts/metacortex run. Never deployed."""
