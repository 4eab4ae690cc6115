package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// packed is one file of an archive or a package.
type packed struct {
	source string // path on this machine
	name   string // path in the archive
	mode   os.FileMode
}

// pack makes the archive of a platform, its list of modules and, for Linux, packages.
func (r *release) pack(platform, program string) error {
	name := "exeunt-" + r.version + "-" + strings.ReplaceAll(platform, "/", "-")
	if err := r.sbom(program, name); err != nil {
		return err
	}
	files := []packed{
		{program, path.Join(name, filepath.Base(program)), 0o755},
		{filepath.Join(r.root, "LICENSE"), path.Join(name, "LICENSE"), 0o644},
		{filepath.Join(r.into, "THIRD-PARTY-LICENCES"), path.Join(name, "THIRD-PARTY-LICENCES"), 0o644},
	}
	for _, dir := range []string{"man", "completions"} {
		found, err := filesIn(filepath.Join(r.into, dir), path.Join(name, dir))
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	pages, err := r.pages(name)
	if err != nil {
		return err
	}
	files = append(files, pages...)
	system, processor, _ := strings.Cut(platform, "/")
	if system == "windows" {
		return r.zip(filepath.Join(r.into, name+".zip"), files)
	}
	if err := r.tarGzip(filepath.Join(r.into, name+".tar.gz"), files); err != nil || system != "linux" {
		return err
	}
	return r.packages(processor, program)
}

// pages lists the documents, which messages and alerts of the program name.
func (r *release) pages(as string) ([]packed, error) {
	files, err := filesIn(filepath.Join(r.root, "docs"), path.Join(as, "docs"))
	for _, page := range []string{"README.md", "SECURITY.md", "CHANGELOG.md"} {
		files = append(files, packed{filepath.Join(r.root, page), path.Join(as, page), 0o644})
	}
	return files, err
}

// filesIn lists the files in a directory and below it, for a directory of an archive. Go files do not leave the sources.
func filesIn(dir, as string) (files []packed, err error) {
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(name) == ".go" {
			return err
		}
		below, err := filepath.Rel(dir, name)
		files = append(files, packed{name, path.Join(as, filepath.ToSlash(below)), 0o644})
		return err
	})
	return files, err
}

func (r *release) tarGzip(target string, files []packed) (err error) {
	out, err := os.Create(target)
	if err != nil {
		return err
	}
	compressed := gzip.NewWriter(out)
	defer func() { err = errors.Join(err, compressed.Close(), out.Close()) }()
	return r.tar(compressed, files)
}

func (r *release) tar(w io.Writer, files []packed) (err error) {
	archive := tar.NewWriter(w)
	defer func() { err = errors.Join(err, archive.Close()) }()
	for _, f := range files {
		info, err := os.Stat(f.source)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: f.name, Mode: int64(f.mode), Size: info.Size(), ModTime: r.date, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if err := copyFile(archive, f.source); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) zip(target string, files []packed) (err error) {
	out, err := os.Create(target)
	if err != nil {
		return err
	}
	archive := zip.NewWriter(out)
	defer func() { err = errors.Join(err, archive.Close(), out.Close()) }()
	for _, f := range files {
		w, err := archive.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.date})
		if err != nil {
			return err
		}
		if err := copyFile(w, f.source); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(w io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// checksums writes SHA256SUMS for the files that users download; sha256sum -c reads it.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.into)
	if err != nil {
		return err
	}
	var lines []string
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		sum, err := hashFile(filepath.Join(r.into, entry.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%s  %s\n", sum, entry.Name()))
	}
	slices.Sort(lines)
	log.Printf("%d files in %s", len(lines), r.into)
	return os.WriteFile(filepath.Join(r.into, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
