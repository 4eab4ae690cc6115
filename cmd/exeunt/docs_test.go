package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// documented finds a command of ours in a line of a page: at its beginning, after a prompt,
// a pipe or a variable, and with the path or the plugin's name in front.
var documented = regexp.MustCompile("(?:^|[`|;&] *|\\$ |-- |sudo |exec \\S+ )(?:[A-Z_]+=\\S+ )*(?:(?:bin/|/usr/bin/)?exeunt|kubectl exeunt) ([a-z].*)")

// TestDocsCommandsExist: each command of ours in README, docs and packaging exists, with every
// flag that it is given. Text in `code` counts like a line of a block.
func TestDocsCommandsExist(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for page, text := range pages(t) {
		for line := range strings.Lines(text) {
			for _, part := range codes(line) {
				found := documented.FindStringSubmatch(part)
				if found == nil {
					continue
				}
				words := wordsOf(found[1])
				command, err := checkCommand(words)
				if err != "" {
					t.Errorf("%s: %s: %s", page, strings.TrimSpace(part), err)
				}
				seen[command] = true
			}
		}
	}
	if len(seen) < 25 {
		t.Errorf("found only %d commands: %v", len(seen), seen)
	}
}

// checkCommand returns the command's path, and what is wrong with the line.
func checkCommand(words []string) (path, wrong string) {
	command, rest, err := newRoot().Find(words)
	switch {
	case err != nil:
		return "", err.Error()
	case !command.HasParent():
		return "", "no such command"
	case command.HasSubCommands() && command.Name() != "bench" && len(rest) > 0 && regexp.MustCompile("^[a-z]").MatchString(rest[0]):
		return "", "no such subcommand"
	}
	for _, word := range rest {
		name, _, _ := strings.Cut(word, "=")
		if long, ok := strings.CutPrefix(name, "--"); ok && long != "" && !hasFlag(command, long) {
			return command.CommandPath(), "no flag " + name
		}
	}
	return command.CommandPath(), ""
}

func hasFlag(c *cobra.Command, name string) bool {
	if name == "help" || name == "version" {
		return true
	}
	return c.Flags().Lookup(name) != nil || c.InheritedFlags().Lookup(name) != nil
}

// wordsOf splits a command line up to the first operator or comment.
func wordsOf(line string) []string {
	var words []string
	for _, word := range strings.Fields(line) {
		if strings.ContainsAny(word[:1], "#|<>&;)\\") {
			break
		}
		words = append(words, strings.Trim(strings.TrimRight(word, "`,;:."), `'"`))
	}
	return words
}

// codes returns the parts of a line that may be commands: the line itself in a block, else
// its `code`.
func codes(line string) []string {
	line = strings.TrimRight(line, "\n")
	if !strings.Contains(line, "`") {
		return []string{strings.TrimSpace(line)}
	}
	var parts []string
	for i, part := range strings.Split(line, "`") {
		if i%2 == 1 {
			parts = append(parts, part)
		}
	}
	return parts
}

// pages returns the pages that users read, and the files that run our commands.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, root := range []string{"../../README.md", "../../docs", "../../packaging"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			switch filepath.Ext(path) {
			case ".md", ".yaml", ".service", ".sh", ".txt":
				text, err := os.ReadFile(path)
				all[strings.TrimPrefix(path, "../../")] = string(text)
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
