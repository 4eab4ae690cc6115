package main

import (
	"errors"
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
	var with string
	cmd := &cobra.Command{
		Use:   "rotate DIR|FILE",
		Short: "Replace the certificate authority, or the key of Secrets, with a time in which both count",
		Long: `Replace the certificate authority in a directory: that of --authority-dir or, for one
server alone, pki in its data directory. Servers take it at their next start.

From then on the new authority signs all certificates, and clients that know only the
old one are still accepted, and still accept the server. Give clients their new
kubeconfig or certificate in this time. Then --finish ends the trust in the old authority.

Given a file, encryption.yaml, it puts a new key for Secrets first. Restart one replica after
the other: when all have the new key they seal with it, and what is there is sealed again;
"exeunt status" shows it. --finish removes the old key; until then --seal-with KEY goes back.`,
		Example: `  exeunt keys rotate /var/lib/exeunt/pki
  systemctl restart exeunt
  exeunt keys rotate /var/lib/exeunt/pki --finish
  systemctl restart exeunt
  exeunt keys rotate /var/lib/exeunt/encryption.yaml`,
		Args: exactly(1, "the directory with ca.crt and ca.key, or the file encryption.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err == nil && !info.IsDir() {
				return rotateSecrets(cmd, o, args[0], finish, with)
			}
			if with != "" {
				return errors.New("--seal-with is for the file encryption.yaml, not for a directory")
			}
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
	cmd.Flags().BoolVar(&finish, "finish", false, "end the trust in the old authority, or remove the old key")
	cmd.Flags().StringVar(&with, "seal-with", "", "put this `KEY` of the file first: the way back")
	cmd.MarkFlagsMutuallyExclusive("finish", "seal-with")
	o.addFlag(cmd)
	return cmd
}

// rotateSecrets changes the file of the keys of Secrets by one step.
func rotateSecrets(cmd *cobra.Command, o output, path string, finish bool, with string) error {
	keys, before, err := seal.ChangeFile(path, finish, with)
	if err != nil {
		return err
	}
	names := keys.Names()
	return o.print(cmd.OutOrStdout(), document{value: map[string]any{"file": path, "keys": names, "finished": finish, "before": before}, text: func(p *printer) {
		if finish {
			p.line("%s has the key %s alone; restart the servers that use it. %s is the file before: keep it as long as backups from its time", path, names[0], before)
			return
		}
		p.line("%s has the key %s first: copy it to every replica, and restart them. All seal with it when the last one has it", path, names[0])
		p.line("when exeunt status says that nothing is sealed with another key: exeunt keys rotate %s --finish\nthe way back: exeunt keys rotate %[1]s --seal-with %[2]s", path, names[1])
	}})
}
