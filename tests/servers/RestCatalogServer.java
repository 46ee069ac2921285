import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/** Iceberg's own REST servlet over a catalog on SQLite; prints the port it got on loopback. */
public class RestCatalogServer {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = new HashMap<>();
    properties.put("uri", "jdbc:sqlite:" + arguments[0]);
    properties.put("jdbc.schema-version", "V1");
    properties.put("warehouse", arguments[1]);
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.initialize("rest", properties);
    ServletContextHandler handler = new ServletContextHandler();
    handler.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    server.addConnector(connector);
    server.setHandler(handler);
    server.start();
    System.out.println("listening on " + connector.getLocalPort());
    server.join();
  }
}
