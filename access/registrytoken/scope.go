package registrytoken

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/exeunt/exeunt/registry/v1"
)

// The actions on a repository, and the one on the catalog.
const (
	Pull   = "pull"
	Push   = "push"
	Delete = "delete"
	Any    = "*"
)

// The bounds of a request for a token. docker asks for two scopes at most: its own and
// the source of a mount.
const (
	maxScopes  = 32
	maxActions = 8
	maxScope   = 512 // bytes; the longest path has 255
)

// Access is what a token allows on one resource, in the form of distribution's tokens.
type Access struct {
	Type    string   `json:"type"` // "repository" or "registry"
	Name    string   `json:"name"`
	Actions []string `json:"actions"`
}

// String returns the scope: TYPE:NAME:ACTION,ACTION.
func (a Access) String() string { return a.Type + ":" + a.Name + ":" + strings.Join(a.Actions, ",") }

var errScope = errors.New("want TYPE:NAME:ACTION,…, for instance repository:shop/web:pull,push")

// ParseScopes reads the scopes that a client asks for: each value has one or several,
// separated by a space. It is strict: a scope that two readers could understand
// differently is refused, so that a token never names a repository that the router would
// not. Types and actions that this registry does not have are left out. Scopes of the
// same resource become one. "*" asks for all actions.
func ParseScopes(values []string) ([]Access, error) {
	var all []Access
	n := 0
	for _, value := range values {
		if value == "" {
			continue
		}
		for scope := range strings.SplitSeq(value, " ") {
			if n++; n > maxScopes {
				return nil, fmt.Errorf("more than %d scopes", maxScopes)
			}
			one, err := parseScope(scope)
			if err != nil {
				return nil, fmt.Errorf("scope %.100q: %w", scope, err)
			}
			if len(one.Actions) > 0 {
				all = merge(all, one)
			}
		}
	}
	return all, nil
}

func parseScope(scope string) (Access, error) {
	if len(scope) > maxScope {
		return Access{}, fmt.Errorf("longer than %d bytes", maxScope)
	}
	parts := strings.Split(scope, ":")
	if len(parts) != 3 {
		return Access{}, errScope
	}
	a := Access{Type: parts[0], Name: parts[1]}
	asked := strings.Split(parts[2], ",")
	if len(asked) > maxActions {
		return Access{}, fmt.Errorf("more than %d actions", maxActions)
	}
	for _, action := range asked {
		if action != Any && !lowerCase(action) {
			return Access{}, errScope
		}
	}
	switch {
	case a.Type == "repository":
		if !v1.ValidPath(a.Name) {
			return Access{}, errors.New("not a repository name")
		}
		a.Actions = known(asked, Pull, Push, Delete)
	case a.Type == "registry" && a.Name == "catalog":
		if slices.Contains(asked, Any) {
			a.Actions = []string{Any}
		}
	case !lowerCase(strings.TrimSuffix(a.Type, "(plugin)")) || a.Name == "":
		return Access{}, errScope
	}
	return a, nil
}

// known returns those of the actions that were asked for, in their own order.
func known(asked []string, actions ...string) []string {
	return slices.DeleteFunc(actions, func(action string) bool {
		return !slices.Contains(asked, action) && !slices.Contains(asked, Any)
	})
}

func merge(all []Access, one Access) []Access {
	i := slices.IndexFunc(all, func(a Access) bool { return a.Type == one.Type && a.Name == one.Name })
	if i < 0 {
		return append(all, one)
	}
	for _, action := range one.Actions {
		if !slices.Contains(all[i].Actions, action) {
			all[i].Actions = append(all[i].Actions, action)
		}
	}
	return all
}

func lowerCase(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}
