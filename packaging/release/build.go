package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const timeFormat = time.RFC3339

// release is what all steps know.
type release struct {
	root, into string
	version    string            // v0.1.0
	date       time.Time         // of the commit, or SOURCE_DATE_EPOCH: the time of every file
	linux      map[string]string // platform to program, of those that the image has
}

// describe finds version and date. SOURCE_DATE_EPOCH overrides the time of the commit.
func (r *release) describe() (err error) {
	if r.version == "" {
		if r.version, err = output(r.root, "git", "describe", "--tags", "--always", "--dirty"); err != nil {
			return err
		}
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = output(r.root, "git", "log", "-1", "--format=%ct"); err != nil {
			return err
		}
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r.date = time.Unix(epoch, 0).UTC()
	return nil
}

// build compiles the program for a platform from the sources in root. An empty cache is
// the user's own.
func (r *release) build(root, platform, cache string) (string, error) {
	system, processor, ok := strings.Cut(platform, "/")
	if !ok {
		return "", fmt.Errorf("platform %q: want SYSTEM/PROCESSOR", platform)
	}
	name := "exeunt"
	if system == "windows" {
		name += ".exe"
	}
	target := filepath.Join(r.into, "program", system+"-"+processor, name)
	if cache != "" {
		target = filepath.Join(cache, name)
	}
	flags := fmt.Sprintf("-s -w -X main.releaseVersion=%s -X main.releaseDate=%s", r.version, r.date.Format(timeFormat))
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags", flags, "-o", target, "./cmd/exeunt")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS="+system, "GOARCH="+processor)
	if cache != "" {
		cmd.Env = append(cmd.Env, "GOCACHE="+filepath.Join(cache, "go-build"))
	}
	begin := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build for %s: %w\n%s", platform, err, out)
	}
	log.Printf("built for %s in %s", platform, time.Since(begin).Round(time.Second))
	if system == "linux" && cache == "" {
		if r.linux == nil {
			r.linux = map[string]string{}
		}
		r.linux[platform] = target
	}
	return target, nil
}

// compare builds a platform again, from a clone in another directory and with an empty
// build cache. Uncommitted changes are not in the clone, so they fail here.
func (r *release) compare(platform, program string) (err error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	clone := filepath.Join(dir, "clone")
	if _, err := output(r.root, "git", "clone", "--quiet", r.root, clone); err != nil {
		return err
	}
	commit, err := output(r.root, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if _, err := output(clone, "git", "checkout", "--quiet", commit); err != nil {
		return err
	}
	second, err := r.build(clone, platform, filepath.Join(dir, "cache"))
	if err != nil {
		return err
	}
	a, err := hashFile(program)
	if err != nil {
		return err
	}
	b, err := hashFile(second)
	if err != nil {
		return err
	}
	if a != b {
		return fmt.Errorf("two builds for %s differ: %s and %s", platform, a, b)
	}
	log.Printf("two builds for %s are equal: %s", platform, a)
	return nil
}

func hashFile(name string) (string, error) {
	data, err := os.ReadFile(name)
	return fmt.Sprintf("%x", sha256.Sum256(data)), err
}

// output runs a command and returns its standard output without the last newline.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, problem.String())
	}
	return strings.TrimSpace(string(out)), nil
}
