#!/bin/sh
# Runs after a removal. Data and user stay: remove /var/lib/exeunt by hand when it is no
# longer needed.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
