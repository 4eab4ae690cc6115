package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packages makes the Debian and the RPM package of a processor.
func (r *release) packages(processor, program string) error {
	for _, format := range []string{"deb", "rpm"} {
		info, err := r.describePackage(processor, program)
		if err != nil {
			return err
		}
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info = nfpm.WithDefaults(info)
		target := filepath.Join(r.into, packager.ConventionalFileName(info))
		info.Target = target
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		out, err := os.Create(target)
		if err != nil {
			return err
		}
		if err := errors.Join(packager.Package(info, out), out.Close()); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		if format == "deb" {
			if err := checkDeb(target); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) describePackage(processor, program string) (*nfpm.Info, error) {
	deploy := filepath.Join(r.root, "packaging")
	add := func(source, name string, mode os.FileMode, kind string) *files.Content {
		return &files.Content{Source: source, Destination: name, Type: kind, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: r.date, Owner: "root", Group: "root"}}
	}
	contents := files.Contents{
		add(program, "/usr/bin/exeunt", 0o755, files.TypeFile),
		add("/usr/bin/exeunt", "/usr/bin/kubectl-exeunt", 0o777, files.TypeSymlink),
		add("/usr/bin/exeunt", "/usr/bin/kubectl_complete-exeunt", 0o777, files.TypeSymlink),
		add(filepath.Join(deploy, "systemd", "exeunt.sysusers"), "/usr/lib/sysusers.d/exeunt.conf", 0o644, files.TypeFile),
		add(filepath.Join(deploy, "package", "exeunt.yaml"), "/etc/exeunt/exeunt.yaml", 0o644, files.TypeConfigNoReplace),
		add(filepath.Join(r.root, "LICENSE"), "/usr/share/doc/exeunt/copyright", 0o644, files.TypeFile),
		add(filepath.Join(r.into, "THIRD-PARTY-LICENCES"), "/usr/share/doc/exeunt/THIRD-PARTY-LICENCES", 0o644, files.TypeFile),
		add(filepath.Join(r.into, "completions", "exeunt.bash"), "/usr/share/bash-completion/completions/exeunt", 0o644, files.TypeFile),
		add(filepath.Join(r.into, "completions", "_exeunt"), "/usr/share/zsh/vendor-completions/_exeunt", 0o644, files.TypeFile),
		add(filepath.Join(r.into, "completions", "exeunt.fish"), "/usr/share/fish/vendor_completions.d/exeunt.fish", 0o644, files.TypeFile),
	}
	for _, unit := range []string{"exeunt.service", "exeunt.socket", "exeunt-registry.socket", "exeunt-backup.service", "exeunt-backup.timer"} {
		contents = append(contents, add(filepath.Join(deploy, "systemd", unit), "/usr/lib/systemd/system/"+unit, 0o644, files.TypeFile))
	}
	rules, err := r.rules(filepath.Join(deploy, "prometheus", "rules.yaml"))
	if err != nil {
		return nil, err
	}
	pages, err := r.pages(installedDocs)
	if err != nil {
		return nil, err
	}
	found := append(pages, packed{rules, installedDocs + "/prometheus/rules.yaml", 0o644})
	for source, name := range map[string]string{
		filepath.Join(r.into, "man"):     "/usr/share/man/man1",
		filepath.Join(deploy, "grafana"): installedDocs + "/grafana",
	} {
		more, err := filesIn(source, name)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	for _, f := range found {
		contents = append(contents, add(f.source, f.name, f.mode, files.TypeFile))
	}
	return &nfpm.Info{
		Name: "exeunt", Arch: processor, Platform: "linux", Version: r.packageVersion(), VersionSchema: "none", MTime: r.date,
		Section: "net", Priority: "optional", Maintainer: "The Exeunt authors <packages@exeunt.dev>", License: "Apache-2.0", Homepage: "https://exeunt.dev",
		Description: "Kubernetes-compatible API, OCI registry and provisioning broker\nOne server over SQLite or PostgreSQL in which deletion can be previewed,\nexplained, and undone.",
		Overridables: nfpm.Overridables{
			Contents: contents,
			RPM:      nfpm.RPM{BuildHost: "localhost"}, // not the name of this machine
			Scripts: nfpm.Scripts{
				PreInstall:  filepath.Join(deploy, "package", "preinstall.sh"),
				PostInstall: filepath.Join(deploy, "package", "postinstall.sh"),
				PreRemove:   filepath.Join(deploy, "package", "preremove.sh"),
				PostRemove:  filepath.Join(deploy, "package", "postremove.sh"),
			},
		},
	}, nil
}

// installedDocs is where packages have the documents.
const installedDocs = "/usr/share/doc/exeunt"

// rules writes the alert rules of the packages, which name the pages where these install them.
func (r *release) rules(source string) (string, error) {
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	target := filepath.Join(r.into, "program", "rules.yaml")
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return "", err
	}
	return target, os.WriteFile(target, bytes.ReplaceAll(text, []byte("docs/runbook.md"), []byte(installedDocs+"/docs/runbook.md")), 0o644)
}

var released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)

// packageVersion returns a version that dpkg and rpm can order. A build between releases is
// older than every release.
func (r *release) packageVersion() string {
	if released.MatchString(r.version) {
		return r.version[1:]
	}
	word := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(r.version, ".")
	return "0.0.0~" + r.date.Format("20060102150405") + "." + word
}

// checkDeb reads the package with dpkg, where there is one.
func checkDeb(name string) error {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		return nil
	}
	about, err := output(".", "dpkg-deb", "-I", name)
	if err != nil {
		return err
	}
	list, err := output(".", "dpkg-deb", "-c", name)
	if err != nil {
		return err
	}
	for _, want := range []string{" Package: exeunt\n", "postinst", "conffiles", "./usr/bin/exeunt\n", "./usr/lib/systemd/system/exeunt.service\n", "./etc/exeunt/exeunt.yaml\n", "./usr/share/man/man1/exeunt-serve.1\n", "./usr/share/doc/exeunt/prometheus/rules.yaml\n", "./usr/share/doc/exeunt/grafana/api.json\n", "./usr/share/doc/exeunt/docs/runbook.md\n"} {
		if !strings.Contains(about+"\n"+list+"\n", want) {
			return fmt.Errorf("%s: dpkg-deb does not show %q:\n%s\n%s", filepath.Base(name), want, about, list)
		}
	}
	return nil
}
