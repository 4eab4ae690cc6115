package main

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// By the names of links to it, kubectl runs this program as "kubectl exeunt", and
// for what to propose when people press the tabulator.
const (
	pluginName   = "kubectl-exeunt"
	completeName = "kubectl_complete-exeunt"
)

// program is the name that this program was started by.
func program(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(args[0]), ".exe")
}

// newProgram is the root command as the program was started: as itself, or as
// kubectl's plugin, whose texts say what its users type.
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

// command is this program at the beginning of something to type.
var command = regexp.MustCompile(`(?m)(^\s*|"|-- )exeunt `)

func asPlugin(text string) string { return command.ReplaceAllString(text, "${1}kubectl exeunt ") }
