package settings

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exeunt/exeunt/lifecycle"
)

// ReadUnits lets the flags of a command take times such as 7d, and sizes such as 10GB. The
// environment and the file of settings set the same flags.
func ReadUnits(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			_, done := f.Value.(*unitValue)
			switch kind := f.Value.Type(); {
			case done:
			case kind == "duration":
				if f.DefValue == "0s" {
					f.DefValue = "0" // which the help does not show
				}
				f.Value = &unitValue{f.Value, func(text string) (string, error) {
					d, err := lifecycle.ParseDuration(text)
					return d.String(), err
				}}
			case kind == "int64" && strings.HasSuffix(f.Name, "-bytes"):
				f.Value = &unitValue{f.Value, func(text string) (string, error) {
					n, err := parseSize(text)
					return strconv.FormatInt(n, 10), err
				}}
			}
		})
	}
}

// unitValue is a flag whose text is read before the flag gets it.
type unitValue struct {
	pflag.Value
	read func(string) (string, error)
}

func (v *unitValue) Set(text string) error {
	plain, err := v.read(text)
	if err != nil {
		return err
	}
	return v.Value.Set(plain)
}

// parseSize reads a number of bytes: 1048576, 1Mi, 1MiB, or in thousands 10MB, 10M.
func parseSize(text string) (int64, error) {
	number := strings.TrimRight(text, "kKMGTiB")
	unit := strings.TrimSuffix(strings.ToUpper(text[len(number):]), "B")
	base := int64(1000)
	if strings.HasSuffix(unit, "I") && len(unit) == 2 {
		unit, base = unit[:1], 1024
	}
	n, err := strconv.ParseInt(number, 10, 64)
	power := strings.Index("KMGT", unit) + 1
	if err != nil || power == 0 || len(unit) > 1 {
		return 0, fmt.Errorf("%q is no size: write bytes, or a unit such as 10GB (thousands) or 64MiB", text)
	}
	if unit == "" {
		power = 0
	}
	for range power {
		if n > math.MaxInt64/base || n < math.MinInt64/base {
			return 0, fmt.Errorf("%q is more bytes than can be counted", text)
		}
		n *= base
	}
	return n, nil
}
