package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/server"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check the server's configuration file"}
	cmd.AddCommand(newConfigCheck())
	return cmd
}

func newConfigCheck() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file without starting a server",
		Long: `Check a configuration file as the server reads it with --config FILE, together with
the environment variables EXEUNT_…, without starting a server. The exit code is 1 if a
start would refuse it. With -o json the result is every setting, its value and its source.`,
		Example: `  exeunt config check /etc/exeunt/exeunt.yaml`,
		Args:    exactly(1, "the file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			settings, err := checkSettings(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), document{value: settings, text: func(w io.Writer) error {
				set := 0
				for _, s := range settings {
					if s.Source != "default" && s.Name != configFlag {
						set++
					}
				}
				_, err := fmt.Fprintf(w, "%s is valid: %s\n", args[0], counted(set, "setting"))
				return err
			}})
		},
	}
	o.addFlag(cmd)
	return cmd
}

// checkSettings returns what would be in force if the server started with a file.
func checkSettings(ctx context.Context, file string) (settings []server.Setting, err error) {
	serve := newServe(func(_ context.Context, c server.Config) error {
		settings = c.Settings
		return server.Check(c)
	})
	serve.SilenceUsage, serve.SilenceErrors = true, true
	serve.SetArgs([]string{"--" + configFlag, file})
	return settings, serve.ExecuteContext(ctx)
}
