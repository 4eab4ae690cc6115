package verify

import (
	"context"
	"fmt"
	"strings"

	"github.com/exeunt/exeunt/sqldb"
)

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
	var read sqldb.Batch
	read.Query(func(row sqldb.Row) error {
		var repository, tag, manifest string
		err := row.Scan(&repository, &tag, &manifest)
		if tag != "" {
			users = append(users, repository+":"+tag)
		} else {
			users = append(users, repository+"@"+manifest)
		}
		return err
	}, blobUsers, b.id, most+1)
	if err := v.db.Read(ctx, nil, &read); err != nil {
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
