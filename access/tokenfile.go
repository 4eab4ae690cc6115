package access

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	v1 "github.com/exeunt/exeunt/access/v1"
)

// tokenFile authenticates by a file of hashed tokens. Each line is
// sha256:HEX,USER,UID,"GROUP,GROUP" as in Kubernetes' token file, with the hash in the
// place of the token. The file is read again within a second of a change; if it cannot
// be read then, the tokens that were read last stay valid and the log says why.
type tokenFile struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	users   map[string]*user.DefaultInfo // guarded by mu; by hash
	read    []byte                       // guarded by mu
	checked time.Time                    // guarded by mu
}

func openTokenFile(path string, log *slog.Logger) (*tokenFile, error) {
	f := &tokenFile{path: path, log: log}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--token-auth-file: %w", err)
	}
	if f.users, err = parseTokens(data); err != nil {
		return nil, fmt.Errorf("--token-auth-file %s: %w", path, err)
	}
	f.read, f.checked = data, time.Now()
	return f, nil
}

func (f *tokenFile) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) > time.Second {
		f.reload()
	}
	if u := f.users[v1.Hash(token)]; u != nil {
		return &authenticator.Response{User: u}, true, nil
	}
	return nil, false, nil
}

// reload reads the file again. The caller holds f.mu.
func (f *tokenFile) reload() {
	f.checked = time.Now()
	data, err := os.ReadFile(f.path)
	if err == nil && bytes.Equal(data, f.read) {
		return
	}
	var users map[string]*user.DefaultInfo
	if err == nil {
		users, err = parseTokens(data)
	}
	if err != nil {
		f.log.Error("the file of tokens cannot be read; its last content stays valid", "file", f.path, "error", err)
		return
	}
	f.users, f.read = users, data
}

// parseTokens reads the lines. An error never shows a token.
func parseTokens(data []byte) (map[string]*user.DefaultInfo, error) {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord, r.Comment = -1, '#'
	records, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("line %d is not CSV", 1+bytes.Count(data[:min(int64(len(data)), r.InputOffset())], []byte("\n")))
	}
	users := map[string]*user.DefaultInfo{}
	for i, record := range records {
		if len(record) < 3 || len(record) > 4 || record[1] == "" {
			return nil, fmt.Errorf(`entry %d: want sha256:HEX,USER,UID,"GROUP,GROUP"`, i+1)
		}
		hash, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(record[0])), "sha256:")
		if raw, err := hex.DecodeString(hash); !ok || err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("entry %d: the token must be hashed: sha256: and the hash in hexadecimal, as printf %%s TOKEN | sha256sum prints it", i+1)
		}
		if users[hash] != nil {
			return nil, fmt.Errorf("entry %d: the token of another entry", i+1)
		}
		u := &user.DefaultInfo{Name: record[1], UID: record[2]}
		if len(record) == 4 && record[3] != "" {
			for _, group := range strings.Split(record[3], ",") {
				u.Groups = append(u.Groups, strings.TrimSpace(group))
			}
		}
		users[hash] = u
	}
	return users, nil
}
