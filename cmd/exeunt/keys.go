package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/store/seal"
)

// encryptionFile is the name that the server uses in its data directory too.
const encryptionFile = "encryption.yaml"

func newKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make and rotate the keys that replicas share",
	}
	cmd.AddCommand(newKeysCreate(), newKeysRotate())
	return cmd
}

func newKeysCreate() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "create DIR",
		Short: "Make a certificate authority and a key for Secrets, for several replicas",
		Long: `Make what all replicas of a server share, in a directory: a certificate authority
(ca.crt, ca.key) and a key for Secrets (encryption.yaml). One server alone makes its own.

Give it to each replica with --authority-dir DIR and --encryption-provider-config
DIR/encryption.yaml. Keep a copy apart from the database: without encryption.yaml the
Secrets in a backup cannot be read.`,
		Example: `  exeunt keys create ./keys
  kubectl create secret generic exeunt-keys --from-file ./keys`,
		Args: exactly(1, "the directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := createKeys(args[0], time.Now()); err != nil {
				return err
			}
			files := []string{"ca.crt", "ca.key", encryptionFile}
			return o.print(cmd.OutOrStdout(), document{value: map[string]any{"directory": args[0], "files": files}, text: func(p *printer) {
				p.line("%s has %s: keep a copy, apart from the database", args[0], strings.Join(files, ", "))
			}})
		},
	}
	o.addFlag(cmd)
	return cmd
}

// createKeys writes the three files. It replaces none.
func createKeys(dir string, now time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	if err := access.CreateAuthority(dir, now); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	_, err := seal.Create(filepath.Join(dir, encryptionFile))
	return err
}

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
			return o.print(cmd.OutOrStdout(), document{value: map[string]any{"directory": args[0], "finished": finish}, text: func(p *printer) { p.line(text, args[0]) }})
		},
	}
	cmd.Flags().BoolVar(&finish, "finish", false, "end the trust in the old authority")
	o.addFlag(cmd)
	return cmd
}
