package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/exeunt/exeunt/cmd/exeunt/explain"
	"github.com/exeunt/exeunt/sqldb/schema"
)

// The linker sets these in a release (packaging/release/build.go): its version, and the time that
// counts as its build date, the same for every build of the same commit.
var releaseVersion, releaseDate string

// build describes the source and the platform of this program.
type build struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	Modified  bool   `json:"modified,omitempty"`  // there were changes beyond the commit
	Committed string `json:"committed,omitempty"` // when
	Built     string `json:"built,omitempty"`     // build date of a release
	Go        string `json:"go"`
	Platform  string `json:"platform"`
	Schema    int    `json:"schema"` // the step of the database that it makes and needs
}

// version returns the module's version, or the commit of the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	return readBuild(info).Version
}

func readBuild(info *debug.BuildInfo) build {
	b := build{Version: "dev", Built: releaseDate, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "vcs.time":
			b.Committed = s.Value
		}
	}
	switch v := info.Main.Version; {
	case releaseVersion != "":
		b.Version = releaseVersion
	case len(b.Commit) >= 12:
		b.Version = "dev-" + b.Commit[:12]
	case v != "" && v != "(devel)":
		b.Version = v
	}
	return b
}

// schemaStep returns the last migration of this program. Both engines have the same
// migrations.
func schemaStep() (int, error) {
	steps, err := schema.Migrations("sqlite")
	if err != nil || len(steps) == 0 {
		return 0, err
	}
	return steps[len(steps)-1].Number, nil
}

// versions is the result of the command. Server is absent if no server answers.
type versions struct {
	Client build            `json:"client"`
	Server *apiversion.Info `json:"server,omitempty"`
}

// serverPatience is how long the command waits for the server's version: short,
// because most users want the version of this program.
const serverPatience = 2 * time.Second

func newVersion() *cobra.Command {
	var t target
	var o output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program, and of the server if one answers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = &debug.BuildInfo{}
			}
			v := versions{Client: readBuild(info)}
			var err error
			if v.Client.Schema, err = schemaStep(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), serverPatience)
			defer cancel()
			var unknown error
			v.Server, unknown = t.serverVersion(ctx)
			return o.print(cmd.OutOrStdout(), document{value: v, text: func(p *printer) { v.write(p, unknown) }})
		},
	}
	t.addServerFlags(cmd)
	o.addFlag(cmd)
	return cmd
}

func (t *target) serverVersion(ctx context.Context) (*apiversion.Info, error) {
	var info apiversion.Info
	if err := t.do(ctx, request{method: http.MethodGet, path: "/version"}, &info); err != nil {
		return nil, explain.Shortest(err)
	}
	return &info, nil
}

func (v *versions) write(p *printer, unknown error) {
	p.line("exeunt:  %s", v.Client.Version)
	if v.Client.Commit != "" {
		changed := ""
		if v.Client.Modified {
			changed = ", with changes"
		}
		p.line("commit:  %s of %s%s", v.Client.Commit, v.Client.Committed, changed)
	}
	if v.Client.Built != "" {
		p.line("built:   %s", v.Client.Built)
	}
	p.line("go:      %s %s", v.Client.Go, v.Client.Platform)
	p.line("schema:  step %d", v.Client.Schema)
	if v.Server != nil {
		p.line("server:  %s", v.Server.GitVersion)
	} else {
		p.line("server:  unknown: %v", unknown)
	}
}

// newMan returns the hidden command that writes the manual pages of all commands: the
// release packs them (packaging/release/).
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages of all commands into a directory",
		Hidden: true,
		Args:   exactly(1, "the directory"),
		RunE:   func(cmd *cobra.Command, args []string) error { return writeManual(cmd.Root(), args[0]) },
	}
}

// writeManual writes a page for each command that the help shows. Two builds of one commit write the same.
func writeManual(root *cobra.Command, dir string) error {
	root.DisableAutoGenTag = true
	date, err := time.Parse(time.RFC3339, releaseDate)
	if err != nil { // it is not a release
		date = time.Unix(0, 0).UTC()
	}
	header := doc.GenManHeader{Section: "1", Date: &date, Source: "exeunt " + version(), Manual: "Exeunt"}
	if err := doc.GenManTree(root, &header, dir); err != nil {
		return fmt.Errorf("write manual pages: %w", err)
	}
	return nil
}
