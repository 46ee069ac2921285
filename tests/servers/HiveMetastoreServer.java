import java.net.InetSocketAddress;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/** The Hive metastore that comes with Spark, on Derby, with its lock tables; prints the port it got on loopback. */
public class HiveMetastoreServer {
  public static void main(String[] arguments) throws Exception {
    HiveConf conf = new HiveConf();
    conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=" + arguments[0] + ";create=true");
    conf.set("hive.metastore.warehouse.dir", arguments[1]);
    conf.set("hive.metastore.schema.verification", "false");
    conf.set("datanucleus.schema.autoCreateAll", "true");
    // The other pool, the default one, does not come with Spark.
    conf.set("datanucleus.connectionPoolingType", "HikariCP");
    TxnDbUtil.setConfValues(conf);
    TxnDbUtil.prepDb(conf);
    IHMSHandler handler = RetryingHMSHandler.getProxy(conf, new HiveMetaStore.HMSHandler("metastore", conf, false), true);
    TServerSocket socket = new TServerSocket(new InetSocketAddress("127.0.0.1", 0));
    System.out.println("listening on " + socket.getServerSocket().getLocalPort());
    new TThreadPoolServer(new TThreadPoolServer.Args(socket).processor(new TSetIpAddressProcessor<>(handler))).serve();
  }
}
