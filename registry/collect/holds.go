package collect

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/imageuse"
)

// Holds says what keeps an image.
type Holds struct {
	Repository string `json:"repository"`
	Tag        string `json:"tag,omitempty"`
	Digest     string `json:"digest"`
	Holds      []Hold `json:"holds"`
}

// Hold is one thing that keeps an image, or a manifest of a list.
type Hold struct {
	// What is tag, list, subject, hold (of the repository), or the kind of a workload.
	What      string `json:"what"`
	Namespace string `json:"namespace,omitempty"` // of a workload
	Name      string `json:"name,omitempty"`      // of a tag or a workload; the digest of a list or subject
	Reference string `json:"reference,omitempty"` // what a workload names
	// Left is when a workload ended to name it, or was removed: the archive or the history has a version that does.
	Left *time.Time `json:"left,omitempty"`
}

// mostHolds bounds an answer.
const mostHolds = 500

const (
	findHeld = `
SELECT m.id, m.digest, r.id, coalesce(m.subject_digest, ''), r.gc_hold FROM repositories r JOIN manifests m ON m.repository_id = r.id
WHERE r.path = $1 AND (m.digest = $2 OR m.id = (SELECT t.manifest_id FROM tags t WHERE t.repository_id = r.id AND t.name = $2))`
	// listHolds lists tags and lists of a manifest, its subject, and the workloads that name one of its tags, its digest or
	// that of a manifest below it.
	listHolds = `
SELECT 'tag' AS what, '' AS namespace, t.name, '' AS reference, 0 AS left_at FROM tags t WHERE t.manifest_id = $1
UNION ALL
SELECT 'list', '', p.digest, '', 0 FROM manifest_references f JOIN manifests p ON p.id = f.parent_id WHERE f.child_id = $1
UNION ALL
SELECT 'subject', '', s.digest, '', 0 FROM manifests s WHERE s.repository_id = $2 AND s.digest = $3
UNION ALL
SELECT u.kind, u.namespace, u.name, u.reference, coalesce(u.left_at, 0) FROM image_uses u
WHERE u.path = $4 AND u.reference IN (
    SELECT t.name FROM tags t WHERE t.manifest_id = $1
    UNION ALL SELECT m.digest FROM manifests m WHERE m.id = $1
    UNION ALL SELECT c.digest FROM manifest_references f JOIN manifests c ON c.id = f.child_id WHERE f.parent_id = $1)
ORDER BY left_at, what, namespace, name LIMIT $5`
)

// Holds returns what keeps an image, named as shop/web:v1 or shop/web@sha256:….
func (c *Collector) Holds(ctx context.Context, name string) (Holds, error) {
	refs := imageuse.Parse(name)
	if len(refs) == 0 {
		return Holds{}, badRequest{fmt.Errorf("%q is not an image: use, for instance, shop/web:v1", name)}
	}
	ref := refs[len(refs)-1]
	h := Holds{Repository: ref.Path, Holds: []Hold{}}
	var id, repository int64
	var subject string
	var onHold bool
	found, err := c.db.Row(ctx, findHeld, []any{ref.Path, ref.Reference}, &id, &h.Digest, &repository, &subject, &onHold)
	if err == nil && !found {
		return h, &registry.Error{Code: registry.ManifestUnknown, Message: fmt.Sprintf("repository %s has no %s", ref.Path, ref.Reference)}
	}
	if err != nil {
		return h, fmt.Errorf("find %s: %w", name, err)
	}
	if ref.Reference != h.Digest {
		h.Tag = ref.Reference
	}
	if onHold {
		h.Holds = append(h.Holds, Hold{What: "hold"})
	}
	err = sqldb.Each(ctx, c.db, func(row sqldb.Row) error {
		var hold Hold
		var left int64
		err := row.Scan(&hold.What, &hold.Namespace, &hold.Name, &hold.Reference, &left)
		if left > 0 {
			at := time.UnixMilli(left).UTC()
			hold.Left = &at
		}
		h.Holds = append(h.Holds, hold)
		return err
	}, listHolds, id, repository, subject, ref.Path, mostHolds)
	if err != nil {
		return h, fmt.Errorf("list what holds %s: %w", name, err)
	}
	return h, nil
}

// Lines says it for people.
func (h *Holds) Lines() []string {
	lines := []string{h.Repository + "@" + h.Digest}
	for _, hold := range h.Holds {
		switch {
		case hold.What == "hold":
			lines = append(lines, "  the repository is on hold")
		case hold.Reference == "":
			lines = append(lines, "  "+hold.What+" "+hold.Name)
		case hold.Left != nil:
			lines = append(lines, fmt.Sprintf("  %s %s/%s named %s until %s, and could be brought back", hold.What, hold.Namespace, hold.Name, hold.Reference, hold.Left.Format(time.RFC3339)))
		default:
			lines = append(lines, fmt.Sprintf("  %s %s/%s names %s", hold.What, hold.Namespace, hold.Name, hold.Reference))
		}
	}
	if len(h.Holds) == 0 {
		lines = append(lines, "  nothing: the collector will take it")
	}
	return lines
}

func (k *Control) holds(ctx context.Context, query url.Values) (any, error) {
	return k.collector.Holds(ctx, query.Get("image"))
}
