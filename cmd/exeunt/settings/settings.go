// Package settings reads the settings of a server: flags, then the environment, then a file in YAML, whose
// keys are the names of the flags. Times and sizes are written as people write them. Begin with Apply.
package settings

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/exeunt/exeunt/server"
)

// ConfigFlag names the file with settings.
const ConfigFlag = "config"

// Apply sets the flags that the command line left out from the environment and
// from the --config file, in this order of precedence, and returns what is in force.
func Apply(flags *pflag.FlagSet, env func(string) (string, bool)) ([]server.Setting, error) {
	sources := map[string]string{}
	flags.Visit(func(f *pflag.Flag) { sources[f.Name] = "flag" })
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		value, set := env(EnvironmentName(f.Name))
		if _, done := sources[f.Name]; done || !set || f.Name == "help" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			errs = append(errs, fmt.Errorf("environment %s: %w", EnvironmentName(f.Name), withoutSecret(err, value)))
		}
		sources[f.Name] = "environment " + EnvironmentName(f.Name)
	})
	if file := flags.Lookup(ConfigFlag).Value.String(); file != "" {
		errs = append(errs, applyFile(flags, file, sources))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var settings []server.Setting
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			settings = append(settings, server.Setting{Name: f.Name, Value: mask(f.Value.String()), Raw: f.Value.String(), Source: cmp.Or(sources[f.Name], "default")})
		}
	})
	return settings, nil
}

// EnvironmentName returns the environment variable of a flag: EXEUNT_TLS_SAN for tls-san.
func EnvironmentName(flag string) string {
	return "EXEUNT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// applyFile reads a file of settings. Every key must be a flag, once; keys that the
// command line or the environment has set are checked for their name only.
func applyFile(flags *pflag.FlagSet, file string, sources map[string]string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--%s: %w", ConfigFlag, err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(document.Content) == 0 {
		return nil // nothing but comments
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: want lines of the form NAME: VALUE", file, top.Line)
	}
	lines := map[string]int{}
	for pair := range slices.Chunk(top.Content, 2) {
		key, value := pair[0], pair[1]
		flag := flags.Lookup(key.Value)
		switch {
		case flag == nil || slices.Contains([]string{ConfigFlag, "help"}, key.Value):
			return fmt.Errorf("%s:%d: unknown key %q: the keys are the flags of exeunt serve, without --", file, key.Line, key.Value)
		case lines[key.Value] > 0:
			return fmt.Errorf("%s:%d: %s is also in line %d", file, key.Line, key.Value, lines[key.Value])
		}
		lines[key.Value] = key.Line
		if sources[key.Value] != "" {
			continue
		}
		if err := setNode(flag, value); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", file, key.Line, key.Value, err)
		}
		sources[key.Value] = fmt.Sprintf("%s:%d", file, key.Line)
	}
	return nil
}

// setNode sets a flag to a YAML value: a scalar, a list for flags that may be repeated, a
// map for flags of the form NAME=VALUE.
func setNode(flag *pflag.Flag, node *yaml.Node) error {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	var texts []string
	for _, item := range node.Content {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return errors.New("its elements must be plain values")
		}
		texts = append(texts, item.Value)
	}
	list, repeatable := flag.Value.(pflag.SliceValue)
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag != "!!null":
		return withoutSecret(flag.Value.Set(node.Value), node.Value)
	case node.Kind == yaml.SequenceNode && repeatable:
		return list.Replace(texts)
	case node.Kind == yaml.MappingNode && flag.Value.Type() == "stringToString":
		var pairs []string
		for pair := range slices.Chunk(texts, 2) {
			pairs = append(pairs, pair[0]+"="+pair[1])
		}
		return flag.Value.Set(CommaSeparated(pairs))
	}
	return fmt.Errorf("want a value of type %s", flag.Value.Type())
}

// withoutSecret removes the secrets of a value from an error that quotes it.
func withoutSecret(err error, value string) error {
	if err == nil || value == "" || mask(value) == value {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), value, mask(value)))
}

// RefuseSecrets makes a command refuse flags and arguments that are a URL with a password.
func RefuseSecrets(c *cobra.Command) {
	check := c.Args
	if !c.Runnable() {
		return
	}
	if check == nil {
		check = cobra.ArbitraryArgs
	}
	c.Args = func(cmd *cobra.Command, args []string) (err error) {
		refuse := func(what, value, remedy string) {
			if u, parseErr := url.Parse(value); parseErr == nil && strings.Contains(value, "://") && hideSecrets(u) {
				err = fmt.Errorf("%s has a password, which other users of this machine can read: %s", what, remedy)
			}
		}
		for i, arg := range args {
			refuse(fmt.Sprintf("argument %d", i+1), arg, "leave it out")
		}
		cmd.Flags().Visit(func(f *pflag.Flag) {
			refuse("--"+f.Name, f.Value.String(), "give it as "+EnvironmentName(f.Name)+" in the environment, or in the file of exeunt serve --config; "+
				"that of PostgreSQL also as PGPASSWORD or in a file (PGPASSFILE)")
		})
		if err != nil {
			return err
		}
		return check(cmd, args)
	}
}

// mask hides the passwords of a URL: the one of its user, and those of its query.
func mask(value string) string {
	if !strings.Contains(value, "://") {
		return value
	}
	u, err := url.Parse(value)
	if err != nil {
		return "(hidden: not a URL)"
	}
	hideSecrets(u)
	return u.Redacted()
}

// hideSecrets hides the secrets in the query of a URL, and reports whether it has one there or a user's password.
func hideSecrets(u *url.URL) (found bool) {
	_, found = u.User.Password()
	query := u.Query()
	for name := range query {
		lower := strings.ToLower(name)
		if slices.ContainsFunc([]string{"pass", "secret", "token", "key", "sig"}, func(part string) bool { return strings.Contains(lower, part) }) {
			query[name], found = []string{"xxxxx"}, true
			u.RawQuery = query.Encode()
		}
	}
	return found
}

// CommaSeparated joins values as repeatable flags read them.
func CommaSeparated(values []string) string {
	var line strings.Builder
	w := csv.NewWriter(&line)
	_ = w.Write(values) // a Builder does not fail
	w.Flush()
	return strings.TrimSuffix(line.String(), "\n")
}
