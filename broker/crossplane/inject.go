package crossplane

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/exeunt/exeunt/broker"
)

// The keys of a token's Secret.
const (
	keyToken     = "token"
	keyServer    = "server"
	keyProject   = "project"
	keyCA        = "ca.crt"
	keyCloudInit = "userData"
	keyHelm      = "values.yaml"
)

// parts are the contents of a token's Secret, by key.
func (c *Cluster) parts(r broker.ProvisionedResource, strategy broker.InjectionStrategy, secret string) map[string]string {
	parts := map[string]string{
		keyToken: secret, keyServer: c.enrolment.Server, keyProject: string(r.State().Project),
	}
	if len(c.enrolment.CA) > 0 {
		parts[keyCA] = string(c.enrolment.CA)
	}
	switch strategy {
	case broker.InjectCloudInitUserData:
		parts[keyCloudInit] = c.cloudInit(r, secret)
	case broker.InjectHelmValues:
		parts[keyHelm] = c.helmValues(r, secret)
	case broker.InjectProviderSecret: // the plain parts are all that a provider takes
	}
	return parts
}

// Paths on the machine of what it enrols with.
const (
	tokenFile = "/etc/exeunt/bootstrap-token"
	caFile    = "/etc/exeunt/ca.crt"
)

// cloudInit is user data for cloud-init: it writes the token where only root
// reads it, and joins. Contents are in base64, so that YAML and shell never
// interpret them.
func (c *Cluster) cloudInit(r broker.ProvisionedResource, secret string) string {
	var b strings.Builder
	file := func(path, mode string, content []byte) {
		fmt.Fprintf(&b, "  - path: %s\n    permissions: %q\n    encoding: b64\n    content: %s\n", path, mode, base64.StdEncoding.EncodeToString(content))
	}
	b.WriteString("#cloud-config\nwrite_files:\n")
	file(tokenFile, "0600", []byte(secret))
	join := []string{"exeunt", "node", "join", "--server", c.enrolment.Server, "--token-file", tokenFile, "--name", r.XRName()}
	if len(c.enrolment.CA) > 0 {
		file(caFile, "0644", c.enrolment.CA)
		join = append(join, "--ca-file", caFile)
	}
	command, _ := json.Marshal(join) // strings can always be marshalled; JSON is YAML
	fmt.Fprintf(&b, "runcmd:\n  - %s\n", command)
	return b.String()
}

// helmValues are values for a chart, as JSON, which is YAML.
func (c *Cluster) helmValues(r broker.ProvisionedResource, secret string) string {
	values := map[string]any{"exeunt": map[string]any{
		"server": c.enrolment.Server, "project": string(r.State().Project), "name": r.XRName(),
		"token": secret, "ca": string(c.enrolment.CA),
	}}
	text, _ := json.MarshalIndent(values, "", "  ") // strings can always be marshalled
	return string(text) + "\n"
}
