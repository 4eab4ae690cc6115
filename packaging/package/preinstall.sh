#!/bin/sh
# Runs before an installation and before an upgrade. After a removal dpkg passes "install"
# with the old version, so that only this script can tell an upgrade; it tells
# postinstall.sh.
set -e
rm -f /run/exeunt-upgrade
if [ "$1" = upgrade ] || [ "$1" = 2 ]; then
	touch /run/exeunt-upgrade
fi
