// Command exeunt is the server and its tools. Each verb has a file of its own
// and does no more than read flags.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/cmd/exeunt/expire"
	"github.com/exeunt/exeunt/cmd/exeunt/explain"
	"github.com/exeunt/exeunt/cmd/exeunt/past"
	"github.com/exeunt/exeunt/cmd/exeunt/settings"
	"github.com/exeunt/exeunt/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if testPrograms[program(os.Args)] != nil {
		ctx = server.WithParent(ctx)
	}
	root := newProgram(os.Args)
	root.SetOut(screen{os.Stdout})
	rest.SetDefaultWarningHandler(rest.NewWarningWriter(screen{os.Stderr}, rest.WarningWriterOptions{}))
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(screen{os.Stderr}, root.DisplayName()+": "+explain.Shortest(err).Error()+explain.Hint(err))
		os.Exit(exitCode(err))
	}
}

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

// exitCode returns 1 unless the error has another code.
func exitCode(err error) int {
	if coded, ok := errors.AsType[codedError](err); ok {
		return coded.code
	}
	return 1
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "exeunt",
		Short:         "A Kubernetes-compatible API server with previews, reports and restores of deletions",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	root.AddCommand(newServe(runServer), newEnvtest(), newConfig(), newPreview(), newWhy(), newKeep(), expire.New(func() expire.Session { return &session{} }), newFinalizer(), newArchive(), newRestore(), newUndo(), past.NewHistory(&session{}), past.NewBlame(&session{}), past.NewRevert(&session{}), newGC(), newConsole(), newNode(), newRegistry(), newUser(), newBackup(), newMigrate(), newDiff(), newStatus(), newKeys(), newBench(), newMan(), newVersion())
	eachCommand(root, refuseUnknown)
	eachCommand(root, func(c *cobra.Command) { settings.ReadUnits(c); settings.RefuseSecrets(c) })
	return root
}

// exactly accepts n arguments. want names them for the error, "ID" or "EVENT
// DURATION", and says where to find them.
func exactly(n int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return fmt.Errorf("%s takes %s, not %s: %s", cmd.CommandPath(), counted(n, "argument"), counted(len(args), "argument"), want)
	}
}

// refuseUnknown makes an unknown subcommand of a group an error. Cobra does so for
// the root only: elsewhere it prints the help and exits with 0.
func refuseUnknown(group *cobra.Command) {
	if !group.HasParent() || !group.HasSubCommands() || group.Runnable() {
		return
	}
	group.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
		}
		return nil
	}
	group.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	group.DisableFlagsInUseLine = true
}

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
	if asProgram := testPrograms[name]; asProgram != nil {
		return asProgram(args)
	}
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
var command = regexp.MustCompile(`(?m)(^\s*|"|-- |\$\()exeunt `)

func asPlugin(text string) string { return command.ReplaceAllString(text, "${1}kubectl exeunt ") }
