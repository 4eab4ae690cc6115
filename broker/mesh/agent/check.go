package agent

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"
)

// check refuses an invalid configuration and names the flag.
func check(c Config) error {
	if len(c.Servers) == 0 {
		return fmt.Errorf("--server: say where the server is, https://HOST:PORT")
	}
	for _, server := range c.Servers {
		u, err := url.Parse(server)
		if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || strings.Contains(server, ",") {
			return fmt.Errorf("--server %q: want https://HOST:PORT", server)
		}
	}
	switch {
	case c.CAFile != "" && c.CAHash != "":
		return fmt.Errorf("--ca-file and --ca-hash: one of the two is enough")
	case (c.Listen == "") != (c.Forward == ""):
		return fmt.Errorf("--listen and --forward belong together: connections that come in have to go somewhere")
	case c.Advertise != "" && c.Listen == "":
		return fmt.Errorf("--advertise: there is nothing to reach without --listen")
	case c.DrainTimeout < 0 || c.DrainTimeout > time.Hour:
		return fmt.Errorf("--drain-timeout %s: want at most an hour", c.DrainTimeout)
	}
	for flag, address := range map[string]string{"--listen": c.Listen, "--forward": c.Forward, "--advertise": c.Advertise} {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
			return fmt.Errorf("%s %q: want HOST:PORT", flag, address)
		}
	}
	return nil
}

var notInLabels = regexp.MustCompile(`[^a-z0-9-]+`)

// machineName is the host name as a DNS label.
func machineName() string {
	name, err := os.Hostname()
	if err != nil {
		return "node"
	}
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	return label(name)
}

func label(name string) string {
	name = notInLabels.ReplaceAllString(name, "-")
	name = strings.Trim(name[:min(len(name), 50)], "-")
	if name == "" {
		return "node"
	}
	return name
}
