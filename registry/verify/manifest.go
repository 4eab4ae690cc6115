package verify

import (
	"context"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// manifestPage is how many manifests are in memory at once.
const manifestPage = 16

// storedManifest is a row of manifests.
type storedManifest struct {
	id, repo  int64
	name      string // of the repository
	digest    digest.Digest
	mediaType string
	payload   []byte
	tracked   bool // kept, or queued for review
}

func (v *verifier) manifests(ctx context.Context) error {
	last := int64(0)
	for {
		page, err := v.manifestPage(ctx, last)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, m := range page {
			if err := v.manifest(ctx, m); err != nil {
				return err
			}
		}
		last = page[len(page)-1].id
	}
}

func (v *verifier) manifestPage(ctx context.Context, after int64) (page []storedManifest, err error) {
	err = sqldb.Each(ctx, v.db, sqldb.Into(&page, func(m *storedManifest) []any {
		return []any{&m.id, &m.repo, &m.name, &m.digest, &m.mediaType, &m.payload, &m.tracked}
	}), listManifests, after, manifestPage)
	return page, err
}

// manifest checks one manifest. If content is missing, it checks whether the
// manifest still exists: a manifest is deleted before its content.
func (v *verifier) manifest(ctx context.Context, m storedManifest) error {
	subject := m.name + "@" + m.digest.String()
	lacks, err := v.defect(ctx, m)
	if err != nil {
		return err
	}
	if lacks != "" {
		var one int64
		still, err := v.db.Row(ctx, statement.ManifestThere, []any{m.id}, &one)
		if err != nil {
			return err
		}
		if still {
			v.found(ManifestDamaged, subject, "%s", lacks)
		}
	}
	if !m.tracked {
		v.found(NeverReviewed, subject, "nothing keeps the manifest, and it is not in gc_manifest_review_queue")
	}
	v.add(Result{Manifests: 1})
	return nil
}

// defect describes what is wrong with a manifest; empty means nothing.
func (v *verifier) defect(ctx context.Context, m storedManifest) (string, error) {
	if !registry.Supported(m.digest.Algorithm()) {
		return "its digest is of no known algorithm", nil
	}
	if actual := m.digest.Algorithm().FromBytes(m.payload); actual != m.digest {
		return fmt.Sprintf("its bytes have digest %s", actual), nil
	}
	blobs, children, err := registry.References(m.mediaType, m.payload)
	if err != nil {
		return err.Error(), nil
	}
	var one int64
	for _, b := range blobs {
		there, err := v.db.Row(ctx, findDigest, []any{b.String(), m.id}, &one)
		if err != nil {
			return "", err
		}
		if !there {
			return fmt.Sprintf("there is no blob %s", b), nil
		}
	}
	for _, child := range children {
		there, err := v.db.Row(ctx, findManifest, []any{m.repo, child.String(), m.id}, &one)
		if err != nil {
			return "", err
		}
		if !there {
			return fmt.Sprintf("there is no manifest %s", child), nil
		}
	}
	return "", nil
}

// report reports a blob that has a problem, or is marked as damaged, and updates
// the mark if Repair is set. It does not mark unreadable bytes: a later read may
// succeed.
func (v *verifier) report(ctx context.Context, b storedBlob, problem Problem, detail string) error {
	lost := problem == BlobMissing || problem == BlobDamaged
	whole := problem == "" && !v.options.Quick
	switch {
	case v.options.Repair && lost && !b.damaged:
		if err := v.mark(ctx, b, true); err != nil {
			return err
		}
		detail += "; marked as damaged: the next push of the blob replaces its bytes"
	case v.options.Repair && whole:
		return v.mark(ctx, b, false)
	case b.damaged && whole:
		problem, detail = BlobDamaged, "its bytes are whole, but it is marked as damaged: --repair removes the mark"
	case b.damaged && problem == "":
		problem, detail = BlobDamaged, "it is marked as damaged"
	case b.damaged:
		detail += "; it is marked as damaged"
	}
	users, err := v.users(ctx, b)
	if err != nil {
		return err
	}
	v.found(problem, b.digest.String(), "%s (path %s; %s)", detail, b.path, users)
	return nil
}

func (v *verifier) mark(ctx context.Context, b storedBlob, damaged bool) error {
	err := v.db.Transact(ctx, func(tx *sqldb.Tx) error {
		return tx.Exec(ctx, markBlob, b.digest.String(), b.path, damaged)
	})
	if err != nil {
		return fmt.Errorf("mark blob: %w", err)
	}
	return nil
}

// users says which images have to be pushed again.
func (v *verifier) users(ctx context.Context, b storedBlob) (text string, err error) {
	const most = 5
	var users []string
	if err := sqldb.Each(ctx, v.db, func(row sqldb.Row) error {
		var repository, tag, manifest string
		err := row.Scan(&repository, &tag, &manifest)
		if tag != "" {
			users = append(users, repository+":"+tag)
		} else {
			users = append(users, repository+"@"+manifest)
		}
		return err
	}, blobUsers, b.id, most+1); err != nil {
		return "", fmt.Errorf("find who uses a blob: %w", err)
	}
	switch {
	case len(users) == 0:
		return "in no image", nil
	case len(users) > most:
		users[most] = "others"
	}
	return "in " + strings.Join(users, ", "), nil
}
