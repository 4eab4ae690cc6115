package server

import (
	"encoding/json"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// replicasAnnotation of the EndpointSlice kubernetes has the processes at each address, in JSON. A
// process is alive while the database shows it (sqldb.Present), so no replica writes
// heartbeats, and a replica that is gone leaves the slice.
const replicasAnnotation = "exeunt.dev/replicas"

// roll decides which addresses stay in the slice.
type roll struct {
	own     string              // this process
	host    string              // its address
	alone   bool                // there are no other processes (SQLite)
	alive   map[string]bool     // processes that the database shows; nil: it does not show them
	missed  map[string]bool     // those that were missing in the round before
	missing map[string]bool     // those that are missing now
	at      map[string][]string // processes by address
}

// mend adds this replica, and removes those that are gone: processes that were missing in two
// rounds, since one that has just started is not shown yet. An address without
// processes is of a version that did not write them: it goes when all processes that
// are alive are in the annotation.
func (r *roll) mend(slice *discoveryv1.EndpointSlice, self discoveryv1.Endpoint) (gone []string) {
	r.at, r.missing = map[string][]string{}, map[string]bool{}
	if text := slice.Annotations[replicasAnnotation]; text != "" {
		if json.Unmarshal([]byte(text), &r.at) != nil {
			r.at = map[string][]string{} // a person wrote it
		}
	}
	if !slices.Contains(r.at[r.host], r.own) {
		r.at[r.host] = append(r.at[r.host], r.own)
	}
	if !slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return slices.Contains(e.Addresses, r.host) }) {
		slice.Endpoints = append(slice.Endpoints, self)
	}
	if r.alive != nil {
		gone = r.removeGone(slice)
	}
	text, _ := json.Marshal(r.at) // strings always marshal
	if slice.Annotations == nil {
		slice.Annotations = map[string]string{}
	}
	slice.Annotations[replicasAnnotation] = string(text)
	return gone
}

func (r *roll) removeGone(slice *discoveryv1.EndpointSlice) (gone []string) {
	known := map[string]bool{}
	for address, processes := range r.at {
		r.at[address] = slices.DeleteFunc(processes, func(id string) bool {
			known[id] = true
			if r.alive[id] || id == r.own {
				return false
			}
			r.missing[id] = true
			return r.missed[id] || r.alone
		})
	}
	all := true // processes that are alive are known
	for id := range r.alive {
		all = all && known[id]
	}
	slice.Endpoints = slices.DeleteFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		for _, address := range e.Addresses {
			if processes, listed := r.at[address]; len(processes) > 0 || !listed && !all {
				return false
			}
		}
		gone = append(gone, e.Addresses...)
		return true
	})
	maps.DeleteFunc(r.at, func(_ string, processes []string) bool { return len(processes) == 0 })
	return gone
}
