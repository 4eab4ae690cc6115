package harness

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// RegistryUser is the user name of RegistryToken.
const RegistryUser = "exeunt-admin"

// RegistryToken is the administrator's password for the registry, from the file that the
// server names when it starts.
func (s *Server) RegistryToken() string {
	s.t.Helper()
	token, err := os.ReadFile(filepath.Join(s.dir, "registry-token"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// RegistryAuthorization is the header of a raw request to the registry.
func (s *Server) RegistryAuthorization() string {
	s.t.Helper()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(RegistryUser+":"+s.RegistryToken()))
}

// RegistryHTTP is a client of the registry that logs in with every request.
func (s *Server) RegistryHTTP() *http.Client {
	s.t.Helper()
	return &http.Client{Transport: authorized(s.RegistryAuthorization())}
}

// authorized sends its value as the header Authorization.
type authorized string

func (a authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", string(a))
	return http.DefaultTransport.RoundTrip(req)
}

// logins is the docker configuration of this process: crane's library, and the programs
// that a test starts, find the logins of all running registries in it.
var logins struct {
	sync.Mutex
	dir   string // "" means no server runs
	users int
	auths map[string]map[string]string // by HOST:PORT
}

// keepLogin lets clients log in to the registry of this server until the test ends.
func (s *Server) keepLogin() {
	s.t.Helper()
	logins.Lock()
	defer logins.Unlock()
	if logins.users == 0 {
		dir, err := os.MkdirTemp("", "docker-config-")
		if err == nil {
			err = os.Setenv("DOCKER_CONFIG", dir)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		logins.dir, logins.auths = dir, map[string]map[string]string{}
	}
	logins.users++
	s.t.Cleanup(func() {
		logins.Lock()
		defer logins.Unlock()
		if logins.users--; logins.users == 0 {
			_ = os.RemoveAll(logins.dir)
		}
	})
	logins.auths[s.images] = map[string]string{"auth": strings.TrimPrefix(s.RegistryAuthorization(), "Basic ")}
	data, err := json.Marshal(map[string]any{"auths": logins.auths})
	file := filepath.Join(logins.dir, "config.json")
	if err == nil {
		err = os.WriteFile(file+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
