package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/server"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check the server's configuration file"}
	cmd.AddCommand(&cobra.Command{
		Use:     "check FILE",
		Short:   "Check a configuration file without starting a server",
		Long:    "Check a configuration file as exeunt serve --config FILE reads it, with the environment\nvariables EXEUNT_…, without starting a server. The exit code is 1 if a start would refuse it.",
		Example: `  exeunt config check /etc/exeunt/exeunt.yaml`,
		Args:    exactly(1, "the file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set := 0
			serve := newServe(func(_ context.Context, c server.Config) error {
				for _, s := range c.Settings {
					if s.Source != "default" && s.Name != configFlag {
						set++
					}
				}
				return server.Check(c)
			})
			serve.SilenceUsage, serve.SilenceErrors = true, true
			serve.SetArgs([]string{"--" + configFlag, args[0]})
			if err := serve.ExecuteContext(cmd.Context()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %s\n", args[0], counted(set, "setting"))
			return err
		},
	})
	return cmd
}
