package bench

import (
	"time"

	"github.com/spf13/pflag"
)

// AddFlags adds the flags of "exeunt bench".
func (c *Config) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Namespace, "namespace", "bench", "namespace to work in")
	f.IntVar(&c.Clients, "clients", 32, "concurrent requests")
	f.IntVar(&c.Connections, "connections", 8, "TCP connections that the clients share, and as many for the watchers")
	f.IntVar(&c.Objects, "objects", 10_000, "number of ConfigMaps")
	f.IntVar(&c.Size, "size", 1024, "bytes of data in each object")
	f.DurationVar(&c.Duration, "duration", 10*time.Second, "how long the workloads get and watch run")
	f.IntVar(&c.Rounds, "rounds", 10, "number of lists of each kind, and of starts")
	f.IntVar(&c.Watchers, "watchers", 100, "watches to open")
	f.IntVar(&c.Writers, "writers", 4, "clients that write for the watchers")
	f.IntVar(&c.Events, "events", 0, "number of writes for the watchers, instead of --duration")
	f.IntVar(&c.Rate, "rate", 0, "writes for the watchers in a second; 0 is as many as the server answers")
	f.IntVar(&c.PID, "pid", 0, "process of the server on this machine: its CPU time and memory are measured too")
}

// AddFlags adds the flags of "exeunt bench registry".
func (c *RegistryConfig) AddFlags(f *pflag.FlagSet) {
	f.BoolVar(&c.Keep, "keep", false, "leave the pushed images")
	f.IntVar(&c.Clients, "clients", 8, "concurrent requests")
	f.IntVar(&c.Images, "images", 400, "small images to push, each a config and three layers")
	f.IntVar(&c.LayerSize, "layer-size", 16<<10, "bytes in each of those layers")
	f.IntVar(&c.Tags, "tags", 5_000, "tags in the list")
	f.Int64Var(&c.Large, "large", 1<<30, "bytes in the large layer; -1 for none")
	f.DurationVar(&c.Duration, "duration", 5*time.Second, "how long each kind of read runs")
	f.IntVar(&c.Rounds, "rounds", 10, "number of tag lists; a large layer is pushed and pulled a third as often")
	f.StringVar(&c.Yardstick, "yardstick", "", "directory on the registry's disk: for comparison, the run also hashes, writes and syncs large layers there, and sends them by sendfile")
	f.IntVar(&c.PID, "pid", 0, "process of the registry on this machine: its CPU time and memory are measured too")
}
