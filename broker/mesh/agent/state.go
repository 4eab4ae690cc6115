package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/internal/lockfile"
)

// The files in an agent's directory, readable by its owner only.
const (
	stateFile = "node.json"
	peersFile = "peers.json"
	lockFile  = "lock"
)

// state is the durable state of an agent.
type state struct {
	Server string `json:"server"` // one URL, or several separated by commas
	// TokenID is the public part of the token of this enrolment.
	TokenID string `json:"tokenID"`
	// Nonce and Secret are stored before the agent enrols, so that it can
	// repeat the same request after any crash.
	Nonce  string `json:"nonce"`
	Secret string `json:"secret"`
	Name   string `json:"name"`
	// UID is the node's uid on the server. Empty means not enrolled, or the answer
	// is not known yet.
	UID     string `json:"uid,omitempty"`
	Project string `json:"project,omitempty"`
	// Authority is the CA certificate that matched --ca-hash, in PEM.
	Authority string `json:"authority,omitempty"`
	// Leaving: the node is leaving the mesh.
	Leaving bool `json:"leaving,omitempty"`
}

// directory holds the agent's files. A lock admits one agent at a time.
type directory struct {
	dir   string
	lock  *os.File
	state state
}

// openDirectory makes or opens a directory and reads its state.
func openDirectory(dir string) (*directory, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the node's directory: %w", err)
	}
	d := &directory{dir: dir}
	var err error
	if d.lock, err = os.OpenFile(d.path(lockFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("lock the node's directory: %w", err)
	}
	if locked, err := lockfile.TryLock(d.lock); err != nil {
		d.close()
		return nil, fmt.Errorf("lock the node's directory: %w", err)
	} else if !locked {
		d.close()
		return nil, fmt.Errorf("another agent uses %s; give this one its own with --state", dir)
	}
	data, err := os.ReadFile(d.path(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &d.state)
	}
	if err != nil {
		d.close()
		return nil, fmt.Errorf("read %s: %w", d.path(stateFile), err)
	}
	return d, nil
}

func (d *directory) path(name string) string { return filepath.Join(d.dir, name) }

// close releases the lock.
func (d *directory) close() { _ = d.lock.Close() }

// save makes the state durable.
func (d *directory) save() error { return writeFile(d.path(stateFile), d.state) }

// savePeers replaces the file with the list of peers.
func (d *directory) savePeers(peers []v1alpha1.Peer) error {
	return writeFile(d.path(peersFile), struct {
		Project string          `json:"project"`
		Node    string          `json:"node"`
		Peers   []v1alpha1.Peer `json:"peers"`
	}{d.state.Project, d.state.Name, append([]v1alpha1.Peer{}, peers...)})
}

// forget removes the files that a node that has left does not need.
func (d *directory) forget() error {
	for _, name := range []string{peersFile, stateFile} {
		if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clean up: %w", err)
		}
	}
	return nil
}

// writeFile replaces a file atomically and durably: a reader sees the old or
// the new content, also after a power cut.
func writeFile(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
