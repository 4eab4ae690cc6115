package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	v1 "github.com/exeunt/exeunt/access/v1"
)

const usersPath = "/apis/access.exeunt.dev/v1/users"

func newUser() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Add, list and remove users, and renew their tokens",
		Long: `Add, list and remove users, and renew their tokens.

A user authenticates with a token, which is in the kubeconfig that "user add" prints,
and nowhere else: the server stores a hash. A new user may do nothing but ask who it
is; bind it, or one of its groups, to a role:

  kubectl create rolebinding jane-edits --clusterrole=edit --user=jane --namespace shop`,
	}
	cmd.AddCommand(newUserAdd(), newUserToken(), newUserList(), newUserRemove())
	return cmd
}

func newUserAdd() *cobra.Command {
	var t target
	var o output
	var groups []string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add a user, and print its kubeconfig", Args: exactly(1, "NAME of the user"),
		Example: `  exeunt user add jane --group developers >jane.kubeconfig
  exeunt user add ci --ttl 720h >ci.kubeconfig`,
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := t.restConfig()
			if err != nil {
				return err
			}
			secret, token := newToken("first", ttl)
			user := v1.User{ObjectMeta: metav1.ObjectMeta{Name: args[0]}, Spec: v1.UserSpec{Groups: groups, Tokens: []v1.Token{token}}}
			user.APIVersion, user.Kind = v1.GroupVersion.String(), "User"
			if err := t.do(cmd.Context(), request{method: http.MethodPost, path: usersPath, body: user}, &user); err != nil {
				return err
			}
			return printUserConfig(cmd.OutOrStdout(), &o, config, args[0], secret)
		},
	}
	t.addServerFlags(cmd)
	cmd.Flags().StringSliceVar(&groups, "group", nil, "`GROUP` of the user, repeatable")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "how long the token is valid; 0: until the user is removed")
	o.addFlag(cmd)
	return cmd
}

// newToken returns a secret, and what the server stores of it. With a negative ttl the token has ended.
func newToken(name string, ttl time.Duration) (string, v1.Token) {
	secret := v1.NewToken()
	token := v1.Token{Name: name, SHA256: v1.Hash(secret)}
	if ttl != 0 {
		ends := metav1.NewTime(time.Now().Add(ttl).UTC().Truncate(time.Second))
		token.Expires = &ends
	}
	return secret, token
}

func newUserToken() *cobra.Command {
	var t target
	var o output
	var ttl time.Duration
	var revoke string
	cmd := &cobra.Command{
		Use: "token NAME", Short: "Give a user one more token, and print its kubeconfig; or revoke one", Args: exactly(1, `NAME, as "exeunt user list" shows it`),
		Long: `Give a user one more token, and print a kubeconfig with it. The tokens that it has stay
valid, so that programs can change over one after the other; tokens that have ended are
forgotten. Then revoke the old one: "exeunt user list" shows the names of tokens.`,
		Example: "  exeunt user token ci --ttl 720h >new.kubeconfig\n  exeunt user token ci --revoke first",
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := t.restConfig()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("revoke") && revoke == "" {
				return errors.New("--revoke needs the name of a token: exeunt user list")
			}
			var user v1.User
			path := usersPath + "/" + args[0]
			if err := t.do(cmd.Context(), request{method: http.MethodGet, path: path}, &user); err != nil {
				return err
			}
			now, had := time.Now(), len(user.Spec.Tokens)
			user.Spec.Tokens = slices.DeleteFunc(user.Spec.Tokens, func(k v1.Token) bool {
				return k.Name == revoke || revoke == "" && k.Expires != nil && k.Expires.Time.Before(now)
			})
			if revoke != "" && len(user.Spec.Tokens) == had {
				return fmt.Errorf("user %s has no token %q: exeunt user list", args[0], revoke)
			}
			secret, token := newToken("at-"+now.UTC().Format("20060102-150405"), ttl)
			if revoke == "" {
				user.Spec.Tokens = append(user.Spec.Tokens, token)
			}
			if err := t.do(cmd.Context(), request{method: http.MethodPut, path: path, body: user}, &user); err != nil {
				return err
			}
			if revoke == "" {
				return printUserConfig(cmd.OutOrStdout(), &o, config, args[0], secret)
			}
			return o.print(cmd.OutOrStdout(), document{value: user, names: []string{args[0]}, text: func(p *printer) {
				p.line("token %s of user %s is revoked", revoke, args[0])
			}})
		},
	}
	t.addServerFlags(cmd)
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "how long the token is valid; 0: until it is revoked")
	cmd.Flags().StringVar(&revoke, "revoke", "", "revoke the `TOKEN` of this name, and make none")
	cmd.MarkFlagsMutuallyExclusive("ttl", "revoke")
	o.addFlag(cmd)
	return cmd
}

// printUserConfig prints a kubeconfig for the same server with the user's token.
func printUserConfig(out io.Writer, o *output, server *rest.Config, name, token string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["exeunt"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: authorityOf(server), TLSServerName: server.ServerName}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["exeunt"] = &clientcmdapi.Context{Cluster: "exeunt", AuthInfo: name}
	config.CurrentContext = "exeunt"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	var value map[string]any
	if err := yaml.Unmarshal(data, &value); err != nil {
		return err
	}
	return o.print(out, document{value: value, text: func(p *printer) { _, _ = p.Write(data) }})
}

// authorityOf returns the certificate of the authority that a client trusts. It is empty if the
// system's are trusted.
func authorityOf(config *rest.Config) []byte {
	if len(config.CAData) > 0 || config.CAFile == "" {
		return config.CAData
	}
	data, _ := os.ReadFile(config.CAFile) // it was just used to connect
	return data
}

func newUserList() *cobra.Command {
	return ask(&question{}, &cobra.Command{
		Use: "list", Short: "List users, with their groups and tokens", Args: cobra.NoArgs,
	}, func([]string) (request, error) {
		return request{method: http.MethodGet, path: usersPath}, nil
	}, func(list *v1.UserList) document { return listedUsers(list, time.Now()) }, "name")
}

func listedUsers(list *v1.UserList, now time.Time) document {
	return listed("v1", "List", list.Items, "no users; add one with: exeunt user add NAME", "NAME\tGROUPS\tTOKENS\tADDED", func(u v1.User) (string, []any) {
		var tokens []string
		for _, t := range u.Spec.Tokens {
			text := t.Name
			switch {
			case t.Expires != nil && t.Expires.Time.Before(now):
				text += " (ended)"
			case t.Expires != nil:
				text += " (until " + t.Expires.Local().Format(time.DateOnly) + ")"
			}
			tokens = append(tokens, text)
		}
		return u.Name, []any{u.Name, cmp.Or(strings.Join(u.Spec.Groups, ","), "-"), cmp.Or(strings.Join(tokens, ", "), "-"), u.CreationTimestamp.Local().Format(time.DateOnly)}
	})
}

func newUserRemove() *cobra.Command {
	var name string
	return ask(&question{}, &cobra.Command{
		Use: "remove NAME", Short: "Remove a user: its tokens and certificates end at once", Args: exactly(1, `NAME, as "exeunt user list" shows it`),
		Long: `Remove a user. Its tokens, and the certificates that were issued to it, end within a
second on every replica. Bindings that name the user stay: a new user of the same name
would have their rights.`,
	}, func(args []string) (request, error) {
		name = args[0]
		return request{method: http.MethodDelete, path: usersPath + "/" + name}, nil
	}, func(*map[string]any) document {
		return document{names: []string{name}, text: func(p *printer) { p.line("user %s is removed", name) }}
	}, "name")
}
