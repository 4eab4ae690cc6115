#!/bin/sh
# Runs before a removal, and before an upgrade, which keeps the server running: dpkg
# passes "upgrade", rpm passes 1.
set -e
if [ "$1" = upgrade ] || [ "$1" = 1 ]; then
	exit 0
fi
if [ -d /run/systemd/system ]; then
	systemctl disable --now --quiet exeunt.socket exeunt-registry.socket exeunt.service exeunt-backup.timer || true
fi
