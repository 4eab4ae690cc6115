package main

import (
	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/cmd/exeunt/settings"
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
start would refuse it: all parts are built as by a start, on an empty database that goes
again, and files that the settings name are read. It does not ask the database. With -o json the result is every setting, its value and its source.`,
		Example: `  exeunt config check /etc/exeunt/exeunt.yaml`,
		Args:    exactly(1, "the file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readConfig(cmd.Context(), map[string]string{settings.ConfigFlag: args[0]})
			if err == nil {
				err = server.Try(cmd.Context(), c)
			}
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), document{value: c.Settings, text: func(p *printer) {
				set := 0
				for _, s := range c.Settings {
					if s.Source != "default" && s.Name != settings.ConfigFlag {
						set++
					}
				}
				p.line("%s is valid: %s", args[0], counted(set, "setting"))
			}})
		},
	}
	o.addFlag(cmd)
	return cmd
}
