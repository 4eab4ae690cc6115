package store

// queueRewrites adds the statements of rewrites on PostgreSQL: four for all of
// them, where each would take three or more. SQLite has no arrays to pass bodies
// in, and no round trips to save. An object that is rewritten twice is in two
// sets, since a set changes each of its rows once.
func (t *Tx) queueRewrites(rest []*effect) {
	for len(rest) > 0 {
		n, seen := 0, make(map[int64]bool, len(rest))
		for n < len(rest) && !seen[rest[n].id] {
			seen[rest[n].id] = true
			n++
		}
		if n < minSet {
			t.queueEach(rest[:n])
		} else {
			t.queueRewriteSet(rest[:n])
		}
		rest = rest[n:]
	}
}

func (t *Tx) queueRewriteSet(run []*effect) {
	n := len(run)
	ids, revisions, previous, finalizing := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	deletions, graces, actors, cascades := make([]*int64, n), make([]*int64, n), make([]*string, n), make([]*string, n)
	bodies := make([][]byte, n)
	var disowned []int64
	var references referenceRows
	for i, f := range run {
		ids[i], revisions[i], previous[i], finalizing[i], bodies[i] = f.id, f.revision, f.before.revision, f.finalizing, f.body
		deletions[i], graces[i] = nullable[int64](f.deletionTime), nullable[int64](f.graceSeconds)
		actor, cascade := f.cause()
		actors[i], cascades[i] = nullable[string](actor), nullable[string](cascade)
		if f.ownersChange {
			disowned = append(disowned, f.id)
			references.add(f)
		}
	}
	t.queued.Exec(rewriteSetPostgres, ids, revisions, deletions, graces, finalizing, actors, cascades)
	t.queued.Exec(logSetPostgres, ids, revisions, previous, bodies)
	if len(disowned) > 0 {
		t.queued.Exec(disownSetPostgres, disowned)
	}
	if len(references.dependents) > 0 {
		t.queued.Exec(ownSetPostgres, references.dependents, references.owners, references.blocking, references.controller)
	}
}

// referenceRows are rows of owners, column by column.
type referenceRows struct {
	dependents           []int64
	owners               []string
	blocking, controller []bool
}

func (r *referenceRows) add(f *effect) {
	for _, o := range f.owners {
		r.dependents = append(r.dependents, f.id)
		r.owners = append(r.owners, o.uid)
		r.blocking = append(r.blocking, o.blocking)
		r.controller = append(r.controller, o.controller)
	}
}

// nullable is a value that may be nil, as an array's element.
func nullable[T any](value any) *T {
	if v, ok := value.(T); ok {
		return &v
	}
	return nil
}
