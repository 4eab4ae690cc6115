package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// chart packs the Helm chart as helm package does, with the version of the release, whose image it names by default.
func (r *release) chart() error {
	dir := filepath.Join(r.root, "packaging", "helm", "exeunt")
	text, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return err
	}
	stamped := regexp.MustCompile(`(?m)^version: .*$`).ReplaceAllString(string(text), "version: "+r.chartVersion())
	stamped = regexp.MustCompile(`(?m)^appVersion: .*$`).ReplaceAllString(stamped, `appVersion: "`+r.version+`"`)
	temporary := filepath.Join(r.into, ".Chart.yaml")
	if err := os.WriteFile(temporary, []byte(stamped), 0o644); err != nil {
		return err
	}
	defer os.Remove(temporary)
	files, err := filesIn(dir, "exeunt")
	if err != nil {
		return err
	}
	for i := range files {
		if files[i].name == "exeunt/Chart.yaml" {
			files[i].source = temporary
		}
	}
	return r.tarGzip(filepath.Join(r.into, "exeunt-"+r.chartVersion()+".tgz"), files)
}

// chartVersion is the version of the release as SemVer, which helm asks for. Those of other commits are older than every release.
func (r *release) chartVersion() string {
	if regexp.MustCompile(`^v\d+\.\d+\.\d+`).MatchString(r.version) {
		return strings.TrimPrefix(r.version, "v")
	}
	return "0.0.0-g" + r.version
}
