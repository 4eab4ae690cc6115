package importer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"

	v1 "github.com/exeunt/exeunt/registry/v1"
)

// Tree is the storage of a distribution registry, as its filesystem driver lays
// it out below the root directory:
//
//	docker/registry/v2/blobs/ALGORITHM/HE/HEX/data                         the bytes of blobs and manifests
//	docker/registry/v2/repositories/NAME/_layers/ALGORITHM/HEX/link        a blob of a repository
//	…/NAME/_manifests/revisions/ALGORITHM/HEX/link                         a manifest of it
//	…/NAME/_manifests/tags/TAG/current/link                                a tag
//
// A link holds the digest under which the bytes are stored. It differs from the
// digest in its path only if a client used another algorithm. A deleted item has
// a directory without a link. Unfinished uploads (_uploads) are ignored.
type Tree struct {
	files fs.FS // of docker/registry/v2
}

const (
	treeRoot = "docker/registry/v2"
	// maxManifest is larger than any registry accepts.
	maxManifest = 4 << 20
	// maxLink is larger than any digest.
	maxLink = 1 << 10
)

// OpenTree opens the rootdirectory of a registry.
func OpenTree(dir string) (*Tree, error) {
	files, err := fs.Sub(os.DirFS(dir), treeRoot)
	if err != nil {
		return nil, err
	}
	return newTree(dir, files)
}

func newTree(dir string, files fs.FS) (*Tree, error) {
	info, err := fs.Stat(files, "repositories")
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is not the storage of a registry: it has no %s/repositories; give what rootdirectory is in the registry's configuration", dir, treeRoot)
	}
	if err != nil {
		return nil, err
	}
	return &Tree{files}, nil
}

// Repositories lists the repositories in name order, and a Problem for each
// directory that is not a valid repository. Repositories can be nested.
func (t *Tree) Repositories() (list []Repository, problems []Problem, err error) {
	const root = "repositories"
	err = fs.WalkDir(t.files, root, func(at string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(at, root+"/")
		switch {
		case at == root:
			return err
		case err != nil:
			problems = append(problems, Problem{name, err})
			return fs.SkipDir
		case !entry.IsDir():
			return nil
		case entry.Name() != "_manifests":
			if strings.HasPrefix(entry.Name(), "_") {
				return fs.SkipDir
			}
			return nil
		}
		name = path.Dir(name)
		if !v1.ValidPath(name) {
			problems = append(problems, Problem{name, errors.New("this is not a valid repository name")})
			return fs.SkipDir
		}
		revisions, err := t.digests(at + "/revisions")
		if err != nil {
			problems = append(problems, Problem{name, err})
		}
		list = append(list, Repository{name, len(revisions)})
		return fs.SkipDir
	})
	return list, problems, err
}

// digests lists the digests that have a directory in dir, with or without a
// link. A missing directory has none; names that are not digests are skipped.
func (t *Tree) digests(dir string) ([]digest.Digest, error) {
	algorithms, err := t.names(dir)
	if err != nil {
		return nil, err
	}
	var list []digest.Digest
	for _, algorithm := range algorithms {
		hexes, err := t.names(dir + "/" + algorithm)
		if err != nil {
			return nil, err
		}
		for _, hex := range hexes {
			d := digest.NewDigestFromEncoded(digest.Algorithm(algorithm), hex)
			if d.Validate() == nil {
				list = append(list, d)
			}
		}
	}
	return list, nil
}

// names lists the directories in a directory, sorted.
func (t *Tree) names(dir string) ([]string, error) {
	entries, err := fs.ReadDir(t.files, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []string
	for _, entry := range entries {
		if entry.IsDir() {
			list = append(list, entry.Name())
		}
	}
	return list, err
}

// link reads a link. The error is fs.ErrNotExist if there is none.
func (t *Tree) link(at string) (digest.Digest, error) {
	text, err := t.read(at+"/link", maxLink)
	if err != nil {
		return "", err
	}
	d, err := digest.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return "", fmt.Errorf("%s/link holds %q, which is not a digest", at, text)
	}
	return d, nil
}

// read reads a file of at most limit bytes.
func (t *Tree) read(at string, limit int64) ([]byte, error) {
	f, err := t.files.Open(at)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", at, limit)
	}
	return content, err
}

// blob returns the digest under which a repository's blob is stored. The error
// is fs.ErrNotExist if the repository does not have it.
func (t *Tree) blob(repo string, d digest.Digest) (digest.Digest, error) {
	return t.link("repositories/" + repo + "/_layers/" + digestPath(d))
}

// open opens the bytes of a digest, and returns their number.
func (t *Tree) open(content digest.Digest) (fs.File, int64, error) {
	f, err := t.files.Open(dataPath(content))
	if err != nil {
		return nil, 0, missing(err, content)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// missing turns fs.ErrNotExist into a readable error.
func missing(err error, content digest.Digest) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its bytes are missing: there is no %s/%s", treeRoot, dataPath(content))
	}
	return err
}

func digestPath(d digest.Digest) string { return d.Algorithm().String() + "/" + d.Encoded() }

func dataPath(d digest.Digest) string {
	return "blobs/" + d.Algorithm().String() + "/" + d.Encoded()[:2] + "/" + d.Encoded() + "/data"
}
