// Package imageuse keeps an index of the images that objects name: what the registry must
// not take, because it runs, or could be brought back. It promises that a row is written in
// the transaction of the object, and stays for as long as the object or one of its kept
// versions names the image: Forget removes it after that. It knows the kinds of workloads
// and their templates, and no registry: an image of any host counts by its path.
package imageuse

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/exeunt/exeunt/internal/pattern"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// kinds are those whose objects name images. The triggers in the schema list them too.
var kinds = []string{
	"controllerrevisions.apps", "cronjobs.batch", "daemonsets.apps", "deployments.apps", "jobs.batch", "pods", "podtemplates",
	"replicasets.apps", "replicationcontrollers", "statefulsets.apps",
}

// Kinds returns the kinds whose objects name images.
func Kinds() []string { return slices.Clone(kinds) }

// Ref is an image as the registry knows it: a path, and a tag or a digest.
type Ref struct{ Path, Reference string }

// maxRefs bounds the images of one object: each is a row, in a transaction that all writes wait for. A pod has hundreds of containers at
// most.
const maxRefs = 500

var (
	path      = pattern.New(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	reference = pattern.New(`^(?:\w[\w.-]{0,127}|[a-z0-9]+:[0-9a-f]{64,128})$`)
)

// Parse reads an image as a container names it. One with a tag and a digest is two. The
// host is left out: a registry has many names. None if it is no image.
func Parse(text string) (refs []Ref) {
	_, rest, found := strings.Cut(text, "://") // docker-pullable://, in a status
	if !found {
		rest = text
	}
	if host, more, deeper := strings.Cut(rest, "/"); deeper && (strings.ContainsAny(host, ".:") || host == "localhost") {
		rest = more
	}
	name, digest, pinned := strings.Cut(rest, "@")
	name, tag, tagged := strings.Cut(name, ":")
	if !tagged && !pinned {
		tag = "latest"
	}
	if len(name) > 255 || !path().MatchString(name) {
		return nil
	}
	for _, r := range []string{tag, digest} {
		if r != "" && reference().MatchString(r) {
			refs = append(refs, Ref{name, r})
		}
	}
	return refs
}

var hint = []byte(`"image`)

// Of returns the images that a body names, each once, in order: of containers of all sorts, of
// volumes, and of what a pod's status says runs.
func Of(kind string, body []byte) (refs []Ref) {
	if !slices.Contains(kinds, kind) || !bytes.Contains(body, hint) {
		return nil
	}
	seen := map[string]bool{}
	for _, part := range []string{"spec", "data", "status", "template"} {
		refs = collect(gjson.GetBytes(body, part), "", refs, seen)
	}
	slices.SortFunc(refs, func(a, b Ref) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Reference, b.Reference)) })
	refs = slices.Compact(refs)
	return refs[:min(len(refs), maxRefs)]
}

// collect walks through a value. A volume names its image as image.reference. It parses no text twice, and ends when it has seen as many
// as an object may name: any JSON may be in the data of a ControllerRevision, and all writes wait.
func collect(v gjson.Result, name string, refs []Ref, seen map[string]bool) []Ref {
	switch {
	case len(seen) >= maxRefs:
	case v.IsObject() || v.IsArray():
		v.ForEach(func(key, value gjson.Result) bool {
			below := key.String()
			if v.IsArray() || name == "image" && below == "reference" {
				below = name
			}
			refs = collect(value, below, refs, seen)
			return len(seen) < maxRefs
		})
	case v.Type == gjson.String && (name == "image" || name == "imageID") && !seen[v.String()]:
		seen[v.String()] = true
		refs = append(refs, Parse(v.String())...)
	}
	return refs
}

// LockKey begins and LockEnd ends the key of PostgreSQL's advisory lock on the images of a path. There are 512: a transaction with the
// writes of many clients holds those of all their paths, and the lock table of the whole database has room for some thousands.
const (
	LockKey = `hashtextextended('image ' || (hashtextextended(`
	LockEnd = `, 0) & 511), 0)`
)

// use and leave change the index. On PostgreSQL use waits for a transaction of the registry that
// takes images of the path, and such a transaction waits for it.
const (
	useSQLite = `
INSERT INTO image_uses (path, reference, uid, kind, namespace, name) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (path, reference, uid) DO UPDATE SET left_at = NULL`
	usePostgres = `
INSERT INTO image_uses (path, reference, uid, kind, namespace, name)
SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::text FROM (SELECT pg_advisory_xact_lock_shared(` + LockKey + `$1::text` + LockEnd + `)) AS locked
ON CONFLICT (path, reference, uid) DO UPDATE SET left_at = NULL`
	leave = `UPDATE image_uses SET left_at = $4 WHERE path = $1 AND reference = $2 AND uid = $3`
)

// Queue adds the statements for a write of an object at a time, in Unix milliseconds. before is nil
// for a create.
func Queue(b *sqldb.Batch, engine sqldb.Engine, key object.Key, uid string, body, before []byte, at int64) {
	now, was := Of(key.Kind, body), Of(key.Kind, before)
	use := useSQLite
	if engine == sqldb.Postgres {
		use = usePostgres
	}
	names, named := set(now), set(was)
	for _, r := range now {
		if !named[r] {
			b.Exec(use, r.Path, r.Reference, uid, key.Kind, key.Namespace, key.Name)
		}
	}
	for _, r := range was {
		if !names[r] {
			b.Exec(leave, r.Path, r.Reference, uid, at)
		}
	}
}

func set(refs []Ref) map[Ref]bool {
	all := make(map[Ref]bool, len(refs))
	for _, r := range refs {
		all[r] = true
	}
	return all
}

// forget deletes uses that ended before $1, unless the archive has the object, or the history a version of
// it that ended after that.
const forget = `
DELETE FROM image_uses WHERE (path, reference, uid) IN (
    SELECT u.path, u.reference, u.uid FROM image_uses u
    WHERE u.left_at <= $1
        AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.uid = u.uid)
        AND NOT EXISTS (SELECT 1 FROM history h WHERE h.uid = u.uid AND h.ended_at >= u.left_at)
    LIMIT 500)
RETURNING 1`

// Forget deletes uses that ended before a time and of which nothing is kept. The time is that
// after which a version may still be in the log only.
func Forget(ctx context.Context, db *sqldb.DB, before time.Time) error {
	for more := true; more; {
		n := 0
		err := db.Transact(ctx, func(tx *sqldb.Tx) error {
			n = 0
			return sqldb.Each(ctx, tx, func(row sqldb.Row) error { n++; return row.Scan(new(int64)) }, forget, before.UnixMilli())
		})
		if err != nil {
			return err
		}
		more = n == 500
	}
	return nil
}
