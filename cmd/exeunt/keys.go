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
			made := keyFiles{Directory: args[0], Files: []string{"ca.crt", "ca.key", encryptionFile}}
			return o.print(cmd.OutOrStdout(), document{value: made, text: func(p *printer) {
				p.line("%s has %s: keep a copy, apart from the database", made.Directory, strings.Join(made.Files, ", "))
			}})
		},
	}
	o.addFlag(cmd)
	return cmd
}

// keyFiles is the result of the command.
type keyFiles struct {
	Directory string   `json:"directory"`
	Files     []string `json:"files"`
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
