package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/access/registrytoken"
	accessv1 "github.com/exeunt/exeunt/access/v1"
)

// localLogin is the administrator's login to a registry on loopback, where a client
// certificate cannot be used: a token in a file that only the server's user can read,
// beside the kubeconfig that gives the same rights. Only this server's registry accepts
// it. Nil: there is none.
type localLogin struct {
	file string // absolute, if the system allows
	hash [sha256.Size]byte

	// credential of the holders that have it: localPrefix and a hash of hash.
	credential string
}

const (
	tokenFile = "registry-token" // in the data directory
	localUser = "exeunt-admin"   // as in the administrator's certificate
)

// openLocalLogin reads the token, or creates it. It stays the same over restarts, so that
// clients stay logged in; deleting the file ends it with the next start.
func openLocalLogin(data string) (*localLogin, error) {
	path := filepath.Join(data, tokenFile)
	text, err := os.ReadFile(path)
	token := strings.TrimSpace(string(text))
	if errors.Is(err, fs.ErrNotExist) || err == nil && token == "" {
		token = accessv1.NewToken()
		// A rename, so that a crash leaves no half of a token.
		if err = os.WriteFile(path+".new", []byte(token+"\n"), 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the registry's local login: %w", err)
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	hash := sha256.Sum256([]byte(token))
	again := sha256.Sum256(hash[:])
	return &localLogin{path, hash, localPrefix + hex.EncodeToString(again[:])}, nil
}

// localPrefix begins the credential of holders that have the local login.
const localPrefix = "local:"

// holder returns the administrator if a password is the token.
func (l *localLogin) holder(password string) (registrytoken.Holder, bool) {
	if l == nil {
		return registrytoken.Holder{}, false
	}
	hash := sha256.Sum256([]byte(password))
	if subtle.ConstantTimeCompare(hash[:], l.hash[:]) != 1 {
		return registrytoken.Holder{}, false
	}
	return registrytoken.Holder{Name: localUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}, Credential: l.credential}, true
}

// issued says whether a holder logged in with the token as it is now.
func (l *localLogin) issued(h registrytoken.Holder) bool {
	return l != nil && h.Credential == l.credential
}

// path returns the file with the token, or "".
func (l *localLogin) path() string {
	if l == nil {
		return ""
	}
	return l.file
}
