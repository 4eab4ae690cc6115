package exeunttest

import (
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// patience is how long WaitIdle waits: much longer than a collector that can go on needs.
const patience = time.Minute

// collector is what the server says of its garbage collector.
type collector struct {
	Paused                            bool
	Overdue, Claimed, Failing, Asking int
	Failures                          []struct{ Kind, Namespace, Name, Error string }
}

// WaitIdle waits until the garbage collector has nothing to do: what can leave because of the
// writes before the call has left. Objects that wait for a finalizer of another controller stay.
// It fails the test after a minute.
func (s *Server) WaitIdle() {
	s.t.Helper()
	var last collector
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		last = collector{}
		s.must("ask the collector", s.get("/exeunt/gc", "application/json", &last))
		if last.Overdue == 0 && last.Claimed == 0 && last.Asking == 0 {
			return
		}
	}
	s.t.Fatalf("exeunttest: the collector is not idle after %v: %+v", patience, last)
}

// discovery is the part of Kubernetes' aggregated discovery that tells how to list all objects.
type discovery struct {
	Items []struct {
		Metadata struct{ Name string } // the group
		Versions []struct {
			Version   string
			Resources []struct {
				Resource, Scope string
				Verbs           []string
			}
		}
	}
}

// mostExplained is how many objects the log of a failed test explains.
const mostExplained = 20

// logLeaving logs which objects are being deleted, and why they still exist.
func (s *Server) logLeaving() {
	program, err := find()
	if err != nil {
		return
	}
	names, err := s.Leaving()
	if err != nil {
		s.t.Logf("exeunttest: what was still leaving is not known: %v", err)
	}
	for i, name := range names {
		if i == mostExplained {
			s.t.Logf("exeunttest: and %d more were still leaving", len(names)-i)
			return
		}
		args := append([]string{"why", "--kubeconfig", s.Kubeconfig}, strings.Fields(name)...)
		out, _ := exec.Command(program, args...).CombinedOutput() // its output says what is wrong
		s.t.Logf("exeunttest: still leaving: %s\n%s", name, out)
	}
}

// Leaving returns the objects that are being deleted, as arguments of kubectl:
// "configmaps/a --namespace b".
func (s *Server) Leaving() (names []string, err error) {
	for _, root := range []string{"/api", "/apis"} {
		var all discovery
		if err := s.get(root, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &all); err != nil {
			return names, err
		}
		for _, group := range all.Items {
			for _, r := range group.Versions[0].Resources {
				if !strings.Contains(strings.Join(r.Verbs, " "), "delete") || !strings.Contains(strings.Join(r.Verbs, " "), "list") {
					continue
				}
				path, kind := root+"/"+group.Versions[0].Version, r.Resource
				if root == "/apis" {
					path, kind = root+"/"+group.Metadata.Name+"/"+group.Versions[0].Version, r.Resource+"."+group.Metadata.Name
				}
				found, err := s.leavingOf(path+"/"+r.Resource, kind)
				if err != nil {
					return names, err
				}
				names = append(names, found...)
			}
		}
	}
	return names, nil
}

func (s *Server) leavingOf(path, kind string) (names []string, err error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name, Namespace, DeletionTimestamp string }
		}
	}
	if err := s.get(path, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", &list); err != nil {
		return nil, err
	}
	for _, item := range list.Items {
		name := fmt.Sprintf("%s/%s", kind, item.Metadata.Name)
		if item.Metadata.Namespace != "" {
			name += " --namespace " + item.Metadata.Namespace
		}
		if item.Metadata.DeletionTimestamp != "" {
			names = append(names, name)
		}
	}
	return names, nil
}
