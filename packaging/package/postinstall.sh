#!/bin/sh
# Runs after an installation and after an upgrade, of the .deb and of the .rpm. An upgrade
# leaves a server off that the administrator has stopped or disabled.
set -e
if ! getent passwd exeunt >/dev/null; then
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers exeunt.conf
	else
		useradd --system --user-group --home-dir /var/lib/exeunt --shell /usr/sbin/nologin exeunt
	fi
fi
upgrade=
if [ -e /run/exeunt-upgrade ]; then
	upgrade=yes
	rm -f /run/exeunt-upgrade
fi
if [ ! -d /run/systemd/system ]; then
	echo "systemd does not run here. Start the server with:"
	echo "  install -d -o exeunt -g exeunt -m 700 /var/lib/exeunt"
	echo "  setpriv --reuid exeunt --regid exeunt --clear-groups exeunt serve --config /etc/exeunt/exeunt.yaml"
	exit 0
fi
systemctl daemon-reload
if [ -n "$upgrade" ] && ! systemctl --quiet is-active exeunt.service; then
	echo "Exeunt is upgraded. The server was off and stays off."
	exit 0
fi
if [ -z "$upgrade" ]; then
	systemctl enable --quiet exeunt.service
fi
if systemctl restart exeunt.service; then
	echo "Exeunt runs. As root:"
	echo "  export KUBECONFIG=/var/lib/exeunt/kubeconfig"
	echo "  kubectl get namespaces"
else
	echo "Exeunt is installed, but does not start. See: journalctl -u exeunt" >&2
fi
