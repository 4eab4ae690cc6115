package server

import (
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/mesh"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// newMesh makes the mesh and registers its kinds.
func newMesh(c Config, db *sqldb.DB, st *store.Store, kinds *kind.Registry) (*mesh.Mesh, error) {
	nodes, err := mesh.New(db, st, mesh.Options{Heartbeat: c.MeshHeartbeat, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	served, err := mesh.Kinds()
	if err != nil {
		return nil, err
	}
	for _, k := range served {
		kinds.Put(k)
	}
	return nodes, nil
}
