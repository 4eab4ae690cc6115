#!/bin/sh
# Runs after a removal. Data, backups, credentials and user stay, unless the administrator
# says that they are no longer needed.
set -e
root="${DPKG_ROOT:-}"
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
if [ "$1" = purge ]; then
	rm -f "$root/var/lib/systemd/timers/stamp-exeunt-backup.timer"
	stays=
	for path in /var/lib/exeunt /var/backups/exeunt /etc/exeunt/environment; do
		[ -e "$root$path" ] || continue
		if [ "${EXEUNT_PURGE:-}" = all ]; then
			rm -r "$root$path"
		else
			stays="$stays $path"
		fi
	done
	rmdir "$root/etc/exeunt" 2>/dev/null || true
	if [ -n "$stays" ]; then
		echo "Of Exeunt the data, the backups and the credentials stay:$stays"
		echo "A purge with EXEUNT_PURGE=all in its environment removes them. Now:"
		echo "  rm -r$stays && userdel exeunt"
	elif [ -z "$root" ] && [ "${EXEUNT_PURGE:-}" = all ] && id exeunt >/dev/null 2>&1; then
		userdel exeunt || true
	fi
fi
