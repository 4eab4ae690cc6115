package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go test . -run TestCommandPage -update

var update = flag.Bool("update", false, "rewrite docs/reference/commands.md")

const commandPage = "../../docs/reference/commands.md"

const commandHeader = `# Commands

` + "`go generate ./cmd/exeunt`" + ` writes this page from the program's commands. ` + "`exeunt COMMAND --help`" + ` prints the same, and the packages have it as manual
pages (` + "`man exeunt-serve`" + `). As a plugin of kubectl the commands are ` + "`kubectl exeunt COMMAND`" + `.

| command | |
|---|---|
`

// TestCommandPage: docs/reference/commands.md has every command with all its flags.
func TestCommandPage(t *testing.T) {
	root := newRoot()
	page := commandHeader
	var sections strings.Builder
	each(root, func(c *cobra.Command) {
		if !c.HasParent() || !c.IsAvailableCommand() || c.Name() == "help" || c.Name() == "completion" || c.Parent().Name() == "completion" {
			return
		}
		if c.Runnable() && !c.HasSubCommands() || c.Name() == "bench" {
			page += fmt.Sprintf("| [%s](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), cell(c.Short))
			sections.WriteString(commandSection(c))
		}
	})
	page += sections.String()
	if *update {
		if err := os.WriteFile(commandPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.ReadFile(commandPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(page, string(old)); diff != "" {
		t.Errorf("docs/reference/commands.md is stale: run go generate ./cmd/exeunt (-want +got):\n%s", diff)
	}
	if strings.Count(page, "\n## exeunt ") < 30 || !strings.Contains(page, "`--registry-storage directory`") {
		t.Errorf("the page lacks commands or flags: this test has changed")
	}
}

// commandSection returns the section of one command.
func commandSection(c *cobra.Command) string {
	var b strings.Builder
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n\n```text\n%s\n```\n", c.CommandPath(), c.UseLine(), text)
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n\n```text\n%s\n```\n", c.Example)
	}
	rows, hidden := "", ""
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		word, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fallback := ""
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
			fallback = "`" + f.DefValue + "`"
		}
		row := fmt.Sprintf("| `%s` | %s | %s |\n", strings.TrimSpace(name+" "+word), fallback, cell(usage))
		if f.Hidden {
			hidden += row
		} else {
			rows += row
		}
	})
	if rows != "" {
		b.WriteString("\n| flag | default | meaning |\n|---|---|---|\n" + rows)
	}
	if hidden != "" {
		b.WriteString("\nSettings for tuning, which the help does not show:\n\n| flag | default | meaning |\n|---|---|---|\n" + hidden)
	}
	return b.String()
}

// cell escapes text for a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(text)
}
