package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/registry/verify"
	"github.com/exeunt/exeunt/server"
)

func newRegistryVerify() *cobra.Command {
	var c server.Config
	var o verify.Options
	var format output
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that every manifest has its blobs, and every blob its bytes",
		Long: `Check the registry: every manifest matches its digest and has its blobs; every blob
has its bytes, and they match its digest; garbage is queued for review; every
stored path has a row in the database.

Give it the same --data, --database and --registry-storage as the server, and use
the server's version of this program. It only reads, and the server may run:
requests and collection continue. Each finding is a line; with findings the exit
code is 1.

With --repair it marks blobs whose bytes are missing or damaged. From then on the
registry refuses pulls of them and says why, and the next push uploads them again,
which repairs them in all repositories at once. The line of each blob names images
that use it.`,
		Example: `  exeunt registry verify --data /var/lib/exeunt
  exeunt registry verify --repair
  exeunt registry verify --quick --database postgres://exeunt@db.example/exeunt --registry-storage s3://exeunt-blobs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := newStepLine(cmd)
			found := verification{Findings: []verify.Finding{}}
			o.Progress = func(v verify.Result) { p.show(describeVerified(v)) }
			o.Found = func(f verify.Finding) {
				p.clear()
				if format.format == "" { // a person need not wait for the end
					fmt.Fprintln(cmd.OutOrStdout(), f)
					return
				}
				found.Findings = append(found.Findings, f)
			}
			var err error
			found.Result, err = server.VerifyRegistry(cmd.Context(), c, o)
			p.clear()
			if err != nil {
				return err
			}
			err = format.print(cmd.OutOrStdout(), document{value: found, text: func(p *printer) { p.line("%s", describeVerified(found.Result)) }})
			if n := found.Result.Findings; n > 0 {
				err = errors.Join(err, fmt.Errorf("found %s", counted(n, "problem")))
			}
			return err
		},
	}
	addPlaces(cmd, &c.Data, &c.Database, &c.RegistryStorage)
	f := cmd.Flags()
	f.BoolVar(&o.Quick, "quick", false, "compare the sizes of blobs, and do not read them")
	f.BoolVar(&o.Repair, "repair", false, "mark missing and damaged blobs, so that the next push uploads them again")
	format.addFlag(cmd)
	return cmd
}

// verification is the result for scripts.
type verification struct {
	verify.Result
	Findings []verify.Finding `json:"findings"`
}

func describeVerified(v verify.Result) string {
	return fmt.Sprintf("%s, %s, %d MiB read, %s", counted(v.Manifests, "manifest"), counted(v.Blobs, "blob"), v.Bytes>>20, counted(v.Paths, "path"))
}
