package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/access"
)

func newKeysRotate() *cobra.Command {
	var o output
	var finish bool
	cmd := &cobra.Command{
		Use:   "rotate DIR",
		Short: "Replace the certificate authority, with a time in which both are trusted",
		Long: `Replace the certificate authority in a directory: that of --authority-dir or, for one
server alone, pki in its data directory. Servers take it at their next start.

From then on the new authority signs all certificates, and clients that know only the
old one are still accepted, and still accept the server. Give clients their new
kubeconfig or certificate in this time. Then --finish ends the trust in the old authority.`,
		Example: `  exeunt keys rotate /var/lib/exeunt/pki
  systemctl restart exeunt
  exeunt keys rotate /var/lib/exeunt/pki --finish
  systemctl restart exeunt`,
		Args: exactly(1, "the directory with ca.crt and ca.key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			result := rotated{Directory: args[0], Finished: finish}
			text := "%s has a new authority; restart the servers that use it. Both authorities are trusted until: exeunt keys rotate %[1]s --finish"
			var err error
			if finish {
				text = "%s has one authority; restart the servers that use it, and the old one is no longer trusted"
				err = access.FinishRotation(args[0])
			} else {
				err = access.RotateAuthority(args[0], time.Now())
			}
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), document{value: result, text: func(p *printer) { p.line(text, result.Directory) }})
		},
	}
	cmd.Flags().BoolVar(&finish, "finish", false, "end the trust in the old authority")
	o.addFlag(cmd)
	return cmd
}

// rotated is the result of the command.
type rotated struct {
	Directory string `json:"directory"`
	Finished  bool   `json:"finished"`
}
