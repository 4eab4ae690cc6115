// Command release builds everything that a release consists of into one directory:
// static programs for each platform, archives, Debian and RPM packages, manual pages,
// completions, a list of what is linked (SPDX), the licences of all of it, and
// checksums. It builds one platform twice, from another directory and with an empty
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
	root := flag.String("root", "..", "root of the repository")
	into := flag.String("into", "../dist", "directory for the result; its content is replaced")
	flag.StringVar(&r.version, "version", "", "version of the release (default: what git describe says)")
	platforms := flag.String("platforms", everyPlatform, "what to build for")
	again := flag.Bool("again", true, "build the first platform twice and compare; takes minutes")
	flag.Parse()
	var err error
	if r.root, err = filepath.Abs(*root); err == nil {
		r.into, err = filepath.Abs(*into)
	}
	if err == nil {
		err = r.make(strings.Split(*platforms, ","), *again)
	}
	if err != nil {
		log.Fatal("release: ", err)
	}
}

// make builds the release. The first platform must be the one of this machine: its
// program writes the manual pages and the completions.
func (r *release) make(platforms []string, again bool) error {
	if err := r.describe(); err != nil {
		return err
	}
	if err := os.RemoveAll(r.into); err != nil {
		return err
	}
	if err := os.MkdirAll(r.into, 0o755); err != nil {
		return err
	}
	log.Printf("release %s, commit time %s", r.version, r.date.Format(timeFormat))
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
	return r.checksums()
}
