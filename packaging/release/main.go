// Command release builds everything that a release consists of into one directory:
// static programs for each platform, archives, Debian and RPM packages, a container image,
// the Helm chart, manual pages, completions, a list of what is linked (SPDX), the licences of all of it,
// and checksums. It builds one platform twice, from another directory and with an empty
// build cache, and fails if the two programs differ.
//
// It is a module of its own, so that the packagers' dependencies stay out of the server.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
)

// everyPlatform lists what a release is built for. The server is tested on Linux only.
const everyPlatform = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64"

func main() {
	log.SetFlags(0)
	var r release
	root := flag.String("root", "../..", "root of the repository")
	into := flag.String("into", "../../dist", "directory for the result; its content is replaced")
	flag.StringVar(&r.version, "version", "", "version of the release (default: what git describe says)")
	platforms := flag.String("platforms", everyPlatform, "what to build for")
	again := flag.Bool("again", true, "build the first platform twice and compare; takes minutes")
	only := flag.Bool("image", false, "build only the container image")
	push := flag.String("push", "", "also push the image to `HOST/REPOSITORY:TAG`, with the credentials of docker login")
	flag.Parse()
	var err error
	if r.root, err = filepath.Abs(*root); err == nil {
		r.into, err = filepath.Abs(*into)
	}
	list := strings.Split(*platforms, ",")
	switch {
	case err != nil:
	case *only:
		err = r.makeImage(list)
	default:
		err = r.make(list, *again)
	}
	if err == nil && *push != "" {
		err = r.push(*push)
	}
	if err != nil {
		log.Fatal("release: ", err)
	}
}

// make builds the release. The first platform must be the one of this machine: its
// program writes the manual pages and the completions.
func (r *release) make(platforms []string, again bool) error {
	if err := r.begin(); err != nil {
		return err
	}
	for i, platform := range platforms {
		program, err := r.build(r.root, platform, "")
		if err != nil {
			return err
		}
		if i == 0 {
			if again {
				if err := r.compare(platform, program); err != nil {
					return err
				}
			}
			if err := r.document(program); err != nil {
				return err
			}
		}
		if err := r.pack(platform, program); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	if err := r.image(); err != nil {
		return err
	}
	if err := r.chart(); err != nil {
		return err
	}
	return r.checksums()
}

// makeImage builds the container image and what it needs, and nothing else.
func (r *release) makeImage(platforms []string) error {
	if err := r.begin(); err != nil {
		return err
	}
	for _, platform := range platforms {
		if strings.HasPrefix(platform, "linux/") {
			if _, err := r.build(r.root, platform, ""); err != nil {
				return err
			}
		}
	}
	return r.image()
}

// begin finds version and date, and empties the directory for the result.
func (r *release) begin() error {
	if err := r.describe(); err != nil {
		return err
	}
	if err := os.RemoveAll(r.into); err != nil {
		return err
	}
	log.Printf("release %s, commit time %s", r.version, r.date.Format(timeFormat))
	return os.MkdirAll(r.into, 0o755)
}
