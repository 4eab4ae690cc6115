#!/bin/sh
# Runs after a removal. Data, backups and user stay: only the administrator knows that
# they are no longer needed.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
if [ "$1" = purge ]; then
	rm -f /var/lib/systemd/timers/stamp-exeunt-backup.timer
	if [ -d /var/lib/exeunt ]; then
		echo "The data of Exeunt stays in /var/lib/exeunt. To remove it:"
		echo "  rm -r /var/lib/exeunt && userdel exeunt"
	fi
fi
