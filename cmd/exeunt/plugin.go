package main

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// kubectl runs this program through links with these names: as "kubectl exeunt",
// and for its completion.
const (
	pluginName   = "kubectl-exeunt"
	completeName = "kubectl_complete-exeunt"
)

// program returns the name under which this program was started.
func program(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(args[0]), ".exe")
}

// newProgram returns the root command: of the program itself, or of kubectl's
// plugin, whose help says "kubectl exeunt".
func newProgram(args []string) *cobra.Command {
	name := program(args)
	root := newRoot()
	if name != pluginName && name != completeName {
		return root
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl exeunt"}
	eachCommand(root, func(c *cobra.Command) {
		c.Long, c.Example = asPlugin(c.Long), asPlugin(c.Example)
	})
	if name == completeName {
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args[1:]...))
	}
	return root
}

func eachCommand(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, visit)
	}
}

// command matches this program at the beginning of a command line in a text.
var command = regexp.MustCompile(`(?m)(^\s*|"|-- )exeunt `)

func asPlugin(text string) string { return command.ReplaceAllString(text, "${1}kubectl exeunt ") }
